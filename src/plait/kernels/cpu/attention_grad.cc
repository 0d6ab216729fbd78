// Gradient of attention, tile by tile: a tile is one block of queries against one block of keys of
// one (sequence, head). Probabilities are computed again from the scores and the saved log-sum-exp
// (Dao et al., "FlashAttention", 2022). Semantics and shapes: ops/attention.cc.
//
// A tile adds to dq of its queries and to dk and dv of its keys. For the same bits with any number
// of threads, every sum has one order: dq over key blocks from the diagonal down; dk and dv over
// the query heads of their group, and for each over query blocks from the diagonal up. Two ways to
// go keep to it. Where (sequence, key/value head) pairs share out evenly, each is one thread's,
// query block by query block. Elsewhere all threads go in rounds: round r has the tiles whose query
// and key blocks are r apart, no two of which add to the same.
#include "plait/kernels/cpu/kernels.h"
#include "plait/kernels/cpu/targets.h"
#include "plait/kernels/cpu/team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/attention_grad.cc"
#include "hwy/foreach_target.h"
//
#include "plait/kernels/cpu/attention-inl.h"

#ifndef PLAIT_KERNELS_CPU_ATTENTION_GRAD_CC_  // once, not for each target
#define PLAIT_KERNELS_CPU_ATTENTION_GRAD_CC_
namespace plait {
namespace {

// Where one gradient is summed: rows of `token` floats between tokens, heads `head` floats apart.
struct Sums {
  float* data;
  int64_t token, head;
  float* at(int64_t t, int64_t h) const { return data + t * token + h * head; }
};

// One block of queries against one block of keys of a sequence, positions counted in it.
struct Tile {
  int64_t token;  // where the sequence begins
  int64_t query, query_end, key, key_end;
  int64_t h, g;          // query head and key/value head
  int64_t sum_h, sum_g;  // the same where their sums lie
};

}  // namespace
}  // namespace plait
#endif

HWY_BEFORE_NAMESPACE();
namespace plait {
namespace HWY_NAMESPACE {
namespace attention_internal {
namespace {

template <class T>
class Backward {
 public:
  Backward(const KernelArgs& args, const AttentionShape& n, Sums dq, Sums dk, Sums dv,
           void* scratch)
      : n_(n),
        padded_(round_up(n.size, kColumns)),
        prescale_(n.cap == 0 ? n.scale * kLog2E : n.scale / n.cap),
        q_(args.in[0].as<T>()),
        k_(args.in[1].as<T>()),
        v_(args.in[2].as<T>()),
        o_(args.in[4].as<T>()),
        lse_(args.in[5].as<float>()),
        d_o_(args.in[6].as<T>()),
        dq_(dq),
        dk_(dk),
        dv_(dv) {
    const int64_t block = round_up(attention_grad_block(n.size), kColumns);
    Carver carver(scratch);
    keys_ = carver.take<float>(block * n.size);
    values_ = carver.take<float>(block * n.size);
    key_panels_ = carver.take<float>(block * padded_);
    for (float** p : {&q_across_, &do_across_}) *p = carver.take<float>(block * n.size);
    for (float** p : {&q_panels_, &do_panels_}) *p = carver.take<float>(block * padded_);
    for (float** p : {&p_, &ds_}) *p = carver.take<float>(block * kAttentionStride);
    for (float** p : {&log_sums_, &deltas_}) *p = carver.take<float>(block);
  }

  void tile(const Tile& t) {
    pack_keys(t);
    pack_queries(t);
    for (int64_t sub = t.query; sub < t.query_end; sub += kAttentionSub) {
      const int64_t end = std::min(sub + kAttentionSub, t.query_end);
      const int64_t low = std::max(t.key, n_.first(sub)), high = std::min(t.key_end, end);
      if (low >= high) continue;
      for (int64_t query = sub; query < end; query += kColumns)
        panel(t, sub, query, std::min(kColumns, end - query), low, high);
      prefetch(t, sub - t.query);
      add_to_keys(t, sub, end, low, high);
    }
  }

 private:
  void pack_keys(const Tile& t) {
    if (t.token + t.key == packed_key_ && t.g == packed_kv_head_) return;
    packed_key_ = t.token + t.key, packed_kv_head_ = t.g;
    const int64_t at = packed_key_ * n_.kv_width + t.g * n_.size, rows = t.key_end - t.key;
    copy_rows(rows, n_.size, k_ + at, n_.kv_width, keys_, n_.size);
    copy_rows(rows, n_.size, v_ + at, n_.kv_width, values_, n_.size);
    pack_b(rows, n_.size, k_ + at, n_.kv_width, 1, key_panels_);
  }

  // A part of the keys and values before this tile's, which follow where a thread has a whole unit.
  void prefetch(const Tile& t, int64_t row) {
    const int64_t count = t.key_end - t.key;
    if (t.key < count) return;
    const int64_t at = (t.token + t.key - count) * n_.kv_width + t.g * n_.size;
    const int64_t part = row / kAttentionSub;
    const int64_t parts = (t.query_end - t.query + kAttentionSub - 1) / kAttentionSub;
    prefetch_rows(k_ + at, n_.kv_width, count, n_.size, part, parts);
    prefetch_rows(v_ + at, n_.kv_width, count, n_.size, part, parts);
  }

  // q and do of the block across (for scores) and in panels (for dk and dv), the latter for
  // kAttentionSub queries at a time; and what the softmax needs of each query.
  void pack_queries(const Tile& t) {
    if (t.token + t.query == packed_query_ && t.h == packed_head_) return;
    packed_query_ = t.token + t.query, packed_head_ = t.h;
    const int64_t at = packed_query_ * n_.q_width + t.h * n_.size, rows = t.query_end - t.query;
    pack_b_transposed(n_.size, rows, q_ + at, n_.q_width, prescale_, q_across_);
    pack_b_transposed(n_.size, rows, d_o_ + at, n_.q_width, n_.scale, do_across_);
    for (int64_t i = 0; i < rows; i += kAttentionSub) {
      const int64_t count = std::min(kAttentionSub, rows - i), from = at + i * n_.q_width;
      pack_b(count, n_.size, q_ + from, n_.q_width, 1, q_panels_ + i * padded_);
      pack_b(count, n_.size, d_o_ + from, n_.q_width, 1, do_panels_ + i * padded_);
    }
    for (int64_t i = 0; i < round_up(rows, kColumns); ++i) {
      const bool there = i < rows;
      log_sums_[i] = there ? lse_[(packed_query_ + i) * n_.heads + t.h] * kLog2E : 0;
      deltas_[i] = there ? n_.scale * dot(o_ + at + i * n_.q_width, d_o_ + at + i * n_.q_width) : 0;
    }
  }

  float dot(const T* a, const T* b) const {
    V sum = hn::Zero(F());
    int64_t l = 0;
    for (; l + kLanes <= n_.size; l += kLanes)
      sum = hn::MulAdd(load(F(), a + l), load(F(), b + l), sum);
    float rest = 0;
    for (; l < n_.size; ++l) rest += load1(a + l) * load1(b + l);
    return rest + hn::GetLane(hn::SumOfLanes(F(), sum));
  }

  // p and ds [key, query - sub] of a panel of queries, zero for the keys of [low, high) that none
  // of them attends to; then their share of dq.
  void panel(const Tile& t, int64_t sub, int64_t query, int64_t queries, int64_t low,
             int64_t high) {
    const Range r(n_, query, queries, t.key, t.key_end);
    zero(query - sub, low - t.key, std::min(high, std::max(low, r.low)) - t.key);
    if (r.empty()) return zero(query - sub, low - t.key, high - t.key);
    zero(query - sub, r.high - t.key, high - t.key);
    const int64_t from = (r.low - t.key) * kAttentionStride + query - sub;
    const int64_t key = (r.low - t.key) * n_.size, row = (query - t.query) * n_.size;
    scores(r.high - r.low, n_.size, keys_ + key, q_across_ + row, p_ + from, kAttentionStride);
    scores(r.high - r.low, n_.size, values_ + key, do_across_ + row, ds_ + from, kAttentionStride);
    const Edge edge(query, n_.window);
    const int64_t at = query - t.query;
    if (n_.cap != 0) {
      soften<true, true>(from, at, r.low, r.low, r.full, edge);
      soften<true, false>(from, at, r.low, r.full, r.diagonal, edge);
      soften<true, true>(from, at, r.low, r.diagonal, r.high, edge);
    } else {
      soften<false, true>(from, at, r.low, r.low, r.full, edge);
      soften<false, false>(from, at, r.low, r.full, r.diagonal, edge);
      soften<false, true>(from, at, r.low, r.diagonal, r.high, edge);
    }
    add_to_queries(t, query, queries, from, r.low - t.key, r.high - r.low);
  }

  void zero(int64_t column, int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j)
      for (float* s : {p_, ds_}) std::fill_n(s + j * kAttentionStride + column, kColumns, 0.0F);
  }

  // From scores q.k and products do.v of keys [begin, end) to p = e^(score - lse) and
  // ds = p (do.v - delta), with the scale, and the derivative of the cap.
  template <bool kCapped, bool kEdge>
  HWY_NOINLINE void soften(int64_t from, int64_t at, int64_t first, int64_t begin, int64_t end,
                           const Edge& edge) {
    const F f;
    const V lse_a = hn::Load(f, log_sums_ + at), lse_b = hn::Load(f, log_sums_ + at + kLanes);
    const V delta_a = hn::Load(f, deltas_ + at), delta_b = hn::Load(f, deltas_ + at + kLanes);
    for (int64_t j = begin; j < end; ++j) {
      float* p = p_ + from + (j - first) * kAttentionStride;
      float* ds = ds_ + from + (j - first) * kAttentionStride;
      one<kCapped, kEdge>(p, ds, lse_a, delta_a, edge, edge.low, j);
      one<kCapped, kEdge>(p + kLanes, ds + kLanes, lse_b, delta_b, edge, edge.high, j);
    }
  }
  template <bool kCapped, bool kEdge>
  HWY_INLINE void one(float* p_at, float* ds_at, V lse, V delta, const Edge& edge,
                      hn::Vec<hn::RebindToSigned<F>> queries, int64_t key) {
    const F f;
    V s = hn::Load(f, p_at), slope = hn::Zero(f);
    if (kCapped) {
      const V t = tanh_of(s);
      s = hn::Mul(hn::Set(f, n_.cap * kLog2E), t);
      slope = hn::NegMulAdd(t, t, hn::Set(f, 1.0F));
    }
    if (kEdge) s = edge.masked(s, queries, key);
    const V p = exp2_of(hn::Min(hn::Set(f, 127.0F), hn::Sub(s, lse)));
    V ds = hn::Mul(p, hn::Sub(hn::Load(f, ds_at), delta));
    if (kCapped) ds = hn::Mul(ds, slope);
    hn::Store(p, f, p_at);
    hn::Store(ds, f, ds_at);
  }

  // dq += ds k
  void add_to_queries(const Tile& t, int64_t query, int64_t queries, int64_t from, int64_t key,
                      int64_t keys) {
    const Strips strips(queries);
    const int64_t all = t.key_end - t.key;
    for (int64_t c = 0; c < padded_; c += kColumns)
      for (int64_t i = 0; i < strips.count; ++i) {
        const int64_t at = strips.begin(i);
        micro_border(strips.begin(i + 1) - at, std::min(kColumns, n_.size - c), keys,
                     Strip::columns(ds_ + from + at, kAttentionStride),
                     key_panels_ + c * all + key * kColumns,
                     dq_.at(t.token + query + at, t.sum_h) + c, dq_.token, true);
      }
  }

  // dv += pT do and dk += dsT q, of keys [low, high) by queries [sub, end): each strip of keys by
  // the queries that attend to some of it.
  void add_to_keys(const Tile& t, int64_t sub, int64_t end, int64_t low, int64_t high) {
    const Strips strips(high - low);
    const int64_t panels = (sub - t.query) * padded_;
    for (int64_t c = 0; c < padded_; c += kColumns) {
      const float* d_o = do_panels_ + panels + c * (end - sub);
      const float* q = q_panels_ + panels + c * (end - sub);
      const int64_t columns = std::min(kColumns, n_.size - c);
      for (int64_t i = 0; i < strips.count; ++i) {
        const int64_t key = low + strips.begin(i), key_end = low + strips.begin(i + 1);
        const int64_t from = std::max(sub, key), to = std::min(end, key_end - 1 + n_.window);
        if (from >= to) continue;
        const int64_t row = (key - t.key) * kAttentionStride + from - sub;
        const int64_t skip = (from - sub) * kColumns;
        micro_border(key_end - key, columns, to - from, Strip::rows(p_ + row, kAttentionStride),
                     d_o + skip, dv_.at(t.token + key, t.sum_g) + c, dv_.token, true);
        micro_border(key_end - key, columns, to - from, Strip::rows(ds_ + row, kAttentionStride),
                     q + skip, dk_.at(t.token + key, t.sum_g) + c, dk_.token, true);
      }
    }
  }

  const AttentionShape& n_;
  const int64_t padded_;
  const float prescale_;  // of queries: scores in units of log 2, or of the cap
  const T *q_, *k_, *v_, *o_;
  const float* lse_;
  const T* d_o_;
  const Sums dq_, dk_, dv_;
  // Keys and values [key, size] and keys in panels; q and do across and in panels; p and ds
  // [key, query] of kAttentionSub queries; and for each query its lse and scale (o . do).
  float *keys_, *values_, *key_panels_, *q_across_, *do_across_, *q_panels_, *do_panels_;
  float *p_, *ds_, *log_sums_, *deltas_;
  int64_t packed_key_ = -1, packed_kv_head_ = -1, packed_query_ = -1, packed_head_ = -1;
};

// All tiles of the `nth` query heads of key/value heads [g_begin, g_end), whose sums lie at heads
// counted from g_begin.
template <class T>
class Tiles {
 public:
  Tiles(const KernelArgs& args, const AttentionShape& n, const Sequences& sequences,
        std::byte* scratch)
      : args_(args), n_(n), sequences_(sequences), scratch_(scratch) {}

  // Sums lie with the results themselves (T = float), or packed by key/value head.
  void run(int64_t g_begin, int64_t g_end, int64_t nth, const Sums& dq, const Sums& dk,
           const Sums& dv) {
    g_begin_ = g_begin, g_end_ = g_end, nth_ = nth;
    dq_ = dq, dk_ = dk, dv_ = dv;
    if (even(args_.threads)) return team(-1);
    int64_t rounds = 0;
    for (int64_t s = 0; s < sequences_.count; ++s)
      rounds = std::max(rounds, reach(sequences_.length(s)) + 1);
    for (int64_t round = 0; round < rounds; ++round) team(round);
  }

 private:
  int64_t block_of(int64_t length) const {
    return even_block(length, attention_grad_block(n_.size));
  }
  // Blocks that a block of queries reaches back, its own not counted.
  int64_t reach(int64_t length) const {
    const int64_t block = block_of(length), blocks = (length + block - 1) / block;
    return std::min(blocks - 1, (n_.window - 2 + block) / block);
  }
  int64_t head(int64_t g) const { return n_.head(g, nth_); }
  int64_t heads() const {
    int64_t count = 0;
    for (int64_t g = g_begin_; g < g_end_; ++g) count += head(g) >= 0 ? 1 : 0;
    return count;
  }
  int64_t unit_cost(int64_t length) const { return n_.pairs(length) + 64 * length; }
  int64_t tile_cost(int64_t length, int64_t i, int64_t round) const {
    const int64_t block = block_of(length), rows = std::min(block, length - i * block);
    return round == 0 ? rows * (rows + 64) / 2 : rows * block;
  }
  int64_t cost(int64_t length, int64_t round) const {
    if (round < 0) return unit_cost(length);
    const int64_t block = block_of(length), blocks = (length + block - 1) / block;
    if (round > reach(length)) return 0;
    return (blocks - 1 - round) * tile_cost(length, 0, round) +
           tile_cost(length, blocks - 1, round);
  }
  int64_t total(int64_t round) const {
    int64_t sum = 0;
    for (int64_t s = 0; s < sequences_.count; ++s) sum += cost(sequences_.length(s), round);
    return sum * heads();
  }

  // Would whole units keep all threads about as busy?
  bool even(int threads) const {
    if (threads == 1) return true;
    const int64_t all = total(-1);
    int64_t most = 0;
    for (int i = 0; i < threads; ++i) {
      Share share(all, i, threads);
      int64_t mine = 0;
      for (int64_t s = 0; s < sequences_.count; ++s) {
        const int64_t one = unit_cost(sequences_.length(s));
        for (int64_t g = 0; g < heads(); ++g) mine += share.take(one) ? one : 0;
      }
      most = std::max(most, mine);
    }
    return static_cast<double>(most) * threads <= 1.05 * static_cast<double>(all);
  }

  // All units (round < 0) or one round, shared by all threads.
  void team(int64_t round) {
    const int64_t all = total(round);
    on_team(worthwhile(args_.threads, all, 10 * n_.size), [&](int thread, int threads) {
      work(round, Share(all, thread, threads),
           scratch_ + thread * attention_grad_thread_bytes(n_.size));
    });
  }

  void work(int64_t round, Share share, std::byte* scratch) {
    Backward<T> backward(args_, n_, dq_, dk_, dv_, scratch);
    const int64_t here = heads();
    for (int64_t s = 0; s < sequences_.count; ++s) {
      const int64_t length = sequences_.length(s);
      if (round > reach(length) || share.skip(cost(length, round) * here)) continue;
      for (int64_t g = g_begin_; g < g_end_; ++g) {
        if (head(g) < 0) continue;
        if (round >= 0)
          diagonal(backward, s, g, round, share);
        else if (share.take(unit_cost(length)))
          unit(backward, s, g);
      }
    }
  }

  void diagonal(Backward<T>& backward, int64_t s, int64_t g, int64_t round, Share& share) {
    const int64_t length = sequences_.length(s), block = block_of(length);
    for (int64_t i = round; i * block < length; ++i)
      if (share.take(tile_cost(length, i, round))) backward.tile(tile(s, g, i, i - round));
  }
  void unit(Backward<T>& backward, int64_t s, int64_t g) {
    const int64_t length = sequences_.length(s), block = block_of(length), back = reach(length);
    for (int64_t i = 0; i * block < length; ++i)
      for (int64_t j = i; j >= std::max<int64_t>(0, i - back); --j) backward.tile(tile(s, g, i, j));
  }
  Tile tile(int64_t s, int64_t g, int64_t i, int64_t j) const {
    const int64_t length = sequences_.length(s), block = block_of(length);
    const bool in_place = std::is_same_v<T, float>;
    return {sequences_.begin(s),
            i * block,
            std::min(length, (i + 1) * block),
            j * block,
            std::min(length, (j + 1) * block),
            head(g),
            g,
            in_place ? head(g) : g - g_begin_,
            in_place ? g : g - g_begin_};
  }

  const KernelArgs& args_;
  const AttentionShape& n_;
  const Sequences& sequences_;
  std::byte* scratch_;
  int64_t g_begin_ = 0, g_end_ = 0, nth_ = 0;
  Sums dq_{}, dk_{}, dv_{};
};

template <class T>
void zero_all(int threads, T* data, int64_t count) {
  parallel_for(threads, count, 1 << 16,
               [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, T(0)); });
}

// Sums [head, token, size] rounded into the results' heads: head(i) gets those of i, if not
// negative.
template <class Head>
void round_heads(const KernelArgs& args, const AttentionShape& n, const Sums& from, int64_t count,
                 const TensorView& to, Head head) {
  const int64_t width = to.dims[1];
  parallel_for(args.threads, n.tokens, 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i)
      if (head(i) >= 0)
        copy_rows(end - begin, n.size, from.at(begin, i), n.size,
                  to.as<uint16_t>() + begin * width + head(i) * n.size, width);
  });
}

struct Room {
  Sequences sequences;
  std::byte* scratch;
  Carver rest;
};
Room divide(const KernelArgs& args, const AttentionShape& n) {
  Carver carver(args.workspace);
  auto* starts = carver.take<int32_t>(n.tokens + 1);
  auto* scratch = carver.take<std::byte>(args.threads * attention_grad_thread_bytes(n.size));
  return {find_sequences(args.in[3].as<int32_t>(), n.tokens, starts), scratch, carver};
}

void run_f32(const KernelArgs& args) {
  const AttentionShape n(args);
  const Room room = divide(args, n);
  Sums sums[3];
  for (size_t i = 0; i < 3; ++i) {
    const TensorView& d = args.out[i];
    sums[i] = {d.as<float>(), d.dims[1], n.size};
    zero_all(args.threads, sums[i].data, n.tokens * d.dims[1]);
  }
  Tiles<float> tiles(args, n, room.sequences, room.scratch);
  for (int64_t nth = 0; nth < n.group; ++nth)
    tiles.run(0, n.kv_heads, nth, sums[0], sums[1], sums[2]);
}

// Sums in f32 for some key/value heads at a time, rounded once.
void run_bf16(const KernelArgs& args) {
  const AttentionShape n(args);
  Room room = divide(args, n);
  const int64_t at_once = attention_grad_heads(n.tokens, n.kv_heads, args.threads);
  const int64_t one = n.tokens * n.size;
  Sums sums[3];
  for (Sums& s : sums) s = {room.rest.take<float>(at_once * one), n.size, one};
  Tiles<uint16_t> tiles(args, n, room.sequences, room.scratch);
  for (int64_t g = 0; g < n.kv_heads; g += at_once) {
    const int64_t end = std::min(g + at_once, n.kv_heads);
    for (const size_t i : {1, 2}) zero_all(args.threads, sums[i].data, (end - g) * one);
    for (int64_t nth = 0; nth < n.group; ++nth) {
      zero_all(args.threads, sums[0].data, (end - g) * one);
      tiles.run(g, end, nth, sums[0], sums[1], sums[2]);
      round_heads(args, n, sums[0], end - g, args.out[0],
                  [&](int64_t i) { return n.head(g + i, nth); });
    }
    for (const size_t i : {1, 2})
      round_heads(args, n, sums[i], end - g, args.out[i], [&](int64_t kv) { return g + kv; });
  }
}

}  // namespace
}  // namespace attention_internal

void attention_grad_f32(const KernelArgs& args) { attention_internal::run_f32(args); }
void attention_grad_bf16(const KernelArgs& args) { attention_internal::run_bf16(args); }

}  // namespace HWY_NAMESPACE
}  // namespace plait
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {

HWY_EXPORT(attention_grad_f32);
HWY_EXPORT(attention_grad_bf16);

void fast_attention_grad(const KernelArgs& args) { HWY_DYNAMIC_DISPATCH(attention_grad_f32)(args); }
void fast_attention_grad_bf16(const KernelArgs& args) {
  HWY_DYNAMIC_DISPATCH(attention_grad_bf16)(args);
}

}  // namespace plait
#endif
