// Attention block by block, with a running maximum and sum for each query (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).
// Semantics and shapes: ops/attention.cc.
//
// A unit of work is one block of queries of one (sequence, head). Its key blocks follow from the
// diagonal down, so every query has met a key, itself, after the first. For each panel of queries
// (16 with AVX2) scores, probabilities and the sums of o stay in the first-level cache while keys
// and values, widened to f32 once for the block, come from the second.
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/targets.h"
#include "plait/kernels/cpu/team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"
//
#include "plait/kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait {
namespace HWY_NAMESPACE {
namespace attention_internal {
namespace {

// Scores become cap tanh(s / cap), in units of log 2, and minus infinity where they are masked.
template <bool kCapped, bool kEdge>
HWY_INLINE void adjust(float* s, int64_t key, int64_t begin, int64_t end, const Edge& edge,
                       float cap) {
  const F f;
  const V cap2 = hn::Set(f, cap * kLog2E);
  for (int64_t j = begin; j < end; ++j) {
    float* row = s + (j - key) * kColumns;
    V a = hn::Load(f, row), b = hn::Load(f, row + kLanes);
    if (kCapped) a = hn::Mul(cap2, tanh_of(a)), b = hn::Mul(cap2, tanh_of(b));
    if (kEdge) a = edge.masked(a, edge.low, j), b = edge.masked(b, edge.high, j);
    hn::Store(a, f, row);
    hn::Store(b, f, row + kLanes);
  }
}

template <class T>
class Forward {
 public:
  Forward(const KernelArgs& args, const AttentionShape& n, void* scratch)
      : n_(n),
        padded_(round_up(n.size, kColumns)),
        prescale_(n.cap == 0 ? n.scale * kLog2E : n.scale / n.cap),
        q_(args.in[0].as<T>()),
        k_(args.in[1].as<T>()),
        v_(args.in[2].as<T>()),
        o_(args.out[0].as<T>()),
        lse_(args.out[1].as<float>()) {
    const int64_t block = round_up(attention_block(n.size), kColumns);
    Carver carver(scratch);
    keys_ = carver.take<float>(block * n.size);
    values_ = carver.take<float>(block * padded_);
    queries_ = carver.take<float>(block * n.size);
    sums_ = carver.take<float>(block * padded_);
    scores_ = carver.take<float>(block * kColumns);
    top_ = carver.take<float>(block);
    total_ = carver.take<float>(block);
    shrink_ = carver.take<float>(kColumns);
  }

  // Queries [begin, end) of the sequence that starts at `token`, head h; keys in blocks of `block`.
  void block(int64_t token, int64_t begin, int64_t end, int64_t h, int64_t g, int64_t block) {
    const int64_t rows = end - begin;
    pack_b_transposed(n_.size, rows, q_ + (token + begin) * n_.q_width + h * n_.size, n_.q_width,
                      prescale_, queries_);
    std::fill_n(top_, round_up(rows, kColumns), -kInfinity);
    std::fill_n(total_, round_up(rows, kColumns), 0.0F);
    for (int64_t key = begin; key >= 0 && key + block > n_.first(begin); key -= block) {
      const int64_t key_end = std::min(key + block, end);
      pack_keys(token + key, key_end - key, g);
      for (int64_t query = begin; query < end; query += kColumns) {
        panel(key, key_end, query, std::min(kColumns, end - query), query - begin, key == begin);
        if (key > 0) prefetch(token + key - block, block, g, query - begin, rows);
      }
    }
    finish(token + begin, rows, h);
  }

 private:
  // Widened keys as they lie, and values in panels, unless they are there already.
  void pack_keys(int64_t token, int64_t count, int64_t g) {
    if (token == packed_token_ && g == packed_head_) return;
    packed_token_ = token, packed_head_ = g;
    const int64_t at = token * n_.kv_width + g * n_.size;
    copy_rows(count, n_.size, k_ + at, n_.kv_width, keys_, n_.size);
    pack_b(count, n_.size, v_ + at, n_.kv_width, 1, values_);
  }

  // A part of the keys and values of a block, after the panel at `row` of `rows`.
  void prefetch(int64_t token, int64_t count, int64_t g, int64_t row, int64_t rows) {
    const int64_t at = token * n_.kv_width + g * n_.size;
    const int64_t part = row / kColumns, parts = (rows + kColumns - 1) / kColumns;
    prefetch_rows(k_ + at, n_.kv_width, count, n_.size, part, parts);
    prefetch_rows(v_ + at, n_.kv_width, count, n_.size, part, parts);
  }

  void panel(int64_t key, int64_t key_end, int64_t query, int64_t queries, int64_t row,
             bool first) {
    const Range range(n_, query, queries, key, key_end);
    if (range.empty()) return;
    const int64_t low = range.low - key, rows = range.high - range.low;
    scores(rows, n_.size, keys_ + low * n_.size, queries_ + row * n_.size, scores_, kColumns);
    mask(range, query);
    soften(rows, row);
    if (!first) shrink_sums(row, queries);
    add_values(low, rows, key_end - key, row, queries, !first);
  }

  void mask(const Range& r, int64_t query) {
    const Edge edge(query, n_.window);
    if (n_.cap != 0) {
      adjust<true, true>(scores_, r.low, r.low, r.full, edge, n_.cap);
      adjust<true, false>(scores_, r.low, r.full, r.diagonal, edge, n_.cap);
      adjust<true, true>(scores_, r.low, r.diagonal, r.high, edge, n_.cap);
    } else {
      adjust<false, true>(scores_, r.low, r.low, r.full, edge, 0);
      adjust<false, true>(scores_, r.low, r.diagonal, r.high, edge, 0);
    }
  }

  // Scores become 2^(s - top); top and total of the panel's queries move on, and shrink_ is what
  // their sums so far are worth under the new top.
  HWY_NOINLINE void soften(int64_t rows, int64_t at) {
    const F f;
    float* s = scores_;
    const V old_a = hn::Load(f, top_ + at), old_b = hn::Load(f, top_ + at + kLanes);
    V top_a = old_a, top_b = old_b;
    for (int64_t j = 0; j < rows; ++j) {
      top_a = hn::Max(top_a, hn::Load(f, s + j * kColumns));
      top_b = hn::Max(top_b, hn::Load(f, s + j * kColumns + kLanes));
    }
    V sum_a = hn::Zero(f), sum_b = hn::Zero(f);
    for (int64_t j = 0; j < rows; ++j) {
      float* row = s + j * kColumns;
      const V a = exp2_of(hn::Sub(hn::Load(f, row), top_a));
      const V b = exp2_of(hn::Sub(hn::Load(f, row + kLanes), top_b));
      sum_a = hn::Add(sum_a, a);
      sum_b = hn::Add(sum_b, b);
      hn::Store(a, f, row);
      hn::Store(b, f, row + kLanes);
    }
    const V shrink_a = exp2_of(hn::Sub(old_a, top_a)), shrink_b = exp2_of(hn::Sub(old_b, top_b));
    hn::Store(shrink_a, f, shrink_);
    hn::Store(shrink_b, f, shrink_ + kLanes);
    hn::Store(top_a, f, top_ + at);
    hn::Store(top_b, f, top_ + at + kLanes);
    float* total = total_ + at;
    hn::Store(hn::MulAdd(hn::Load(f, total), shrink_a, sum_a), f, total);
    hn::Store(hn::MulAdd(hn::Load(f, total + kLanes), shrink_b, sum_b), f, total + kLanes);
  }

  void shrink_sums(int64_t row, int64_t queries) {
    for (int64_t i = 0; i < queries; ++i) {
      if (shrink_[i] == 1) continue;
      float* sums = sums_ + (row + i) * padded_;
      scale_row(padded_, sums, shrink_[i], sums);
    }
  }

  void add_values(int64_t low, int64_t rows, int64_t keys, int64_t row, int64_t queries, bool add) {
    const Strips strips(queries);
    for (int64_t c = 0; c < padded_; c += kColumns)
      for (int64_t i = 0; i < strips.count; ++i) {
        const int64_t at = strips.begin(i);
        micro(strips.begin(i + 1) - at, rows, Strip::columns(scores_ + at, kColumns),
              values_ + c * keys + low * kColumns, sums_ + (row + at) * padded_ + c, padded_, add);
      }
  }

  void finish(int64_t token, int64_t rows, int64_t h) {
    for (int64_t i = 0; i < rows; ++i) {
      scale_row(n_.size, sums_ + i * padded_, 1 / total_[i],
                o_ + (token + i) * n_.q_width + h * n_.size);
      lse_[(token + i) * n_.heads + h] = (top_[i] + std::log2(total_[i])) * kLn2;
    }
  }

  const AttentionShape& n_;
  const int64_t padded_;
  const float prescale_;  // of queries: scores in units of log 2, or of the cap
  const T *q_, *k_, *v_;
  T* o_;
  float* lse_;
  // Of a block: keys [key, size], values and queries in panels, sums of o [query, padded], scores
  // [key, lane], and for each query the largest score and the sum of 2^(score - largest).
  float *keys_, *values_, *queries_, *sums_, *scores_, *top_, *total_, *shrink_;
  int64_t packed_token_ = -1, packed_head_ = -1;
};

// What a block of queries costs, in pairs: the products, and what comes with each query.
int64_t cost(const AttentionShape& n, int64_t begin, int64_t end) {
  return n.pairs(end) - n.pairs(begin) + 64 * (end - begin);
}

// A thread's share of all (sequence, key/value head, block of queries, query head).
template <class T>
void work(const KernelArgs& args, const AttentionShape& n, const Sequences& sequences, Share share,
          void* scratch) {
  Forward<T> forward(args, n, scratch);
  for (int64_t s = 0; s < sequences.count; ++s) {
    const int64_t length = sequences.length(s);
    if (share.skip(cost(n, 0, length) * n.heads)) continue;
    const int64_t block = even_block(length, attention_block(n.size));
    for (int64_t g = 0; g < n.kv_heads; ++g)
      for (int64_t begin = 0; begin < length; begin += block) {
        const int64_t end = std::min(length, begin + block);
        for (int64_t h = n.first_head(g); h < n.first_head(g + 1); ++h)
          if (share.take(cost(n, begin, end)))
            forward.block(sequences.begin(s), begin, end, h, g, block);
      }
  }
}

template <class T>
void run(const KernelArgs& args) {
  const AttentionShape n(args);
  Carver carver(args.workspace);
  const Sequences sequences =
      find_sequences(args.in[3].as<int32_t>(), n.tokens, carver.take<int32_t>(n.tokens + 1));
  const int64_t bytes = attention_thread_bytes(n.size);
  auto* scratch = carver.take<std::byte>(bytes * args.threads);
  int64_t total = 0;
  for (int64_t s = 0; s < sequences.count; ++s) total += cost(n, 0, sequences.length(s)) * n.heads;
  on_team(worthwhile(args.threads, total, 4 * n.size), [&](int thread, int threads) {
    work<T>(args, n, sequences, Share(total, thread, threads), scratch + thread * bytes);
  });
}

}  // namespace
}  // namespace attention_internal

void attention_f32(const KernelArgs& args) { attention_internal::run<float>(args); }
void attention_bf16(const KernelArgs& args) { attention_internal::run<uint16_t>(args); }

}  // namespace HWY_NAMESPACE
}  // namespace plait
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {

HWY_EXPORT(attention_f32);
HWY_EXPORT(attention_bf16);

void fast_attention(const KernelArgs& args) {
  if (args.in[0].dtype == Dtype::bf16) return HWY_DYNAMIC_DISPATCH(attention_bf16)(args);
  HWY_DYNAMIC_DISPATCH(attention_f32)(args);
}

}  // namespace plait
#endif
