// What both directions of attention share that is not arithmetic: shapes, sequences, and who does
// what. Semantics: ops/attention.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "plait/ir/op.h"
#include "plait/ops/attention.h"

namespace plait {

struct AttentionShape {
  int64_t size, tokens, q_width, kv_width, heads, kv_heads, group, first_q, first_kv;
  int64_t window;  // at most all tokens
  float scale, cap;
  explicit AttentionShape(const KernelArgs& args)
      : size(static_cast<int64_t>(attr(*args.attrs, "head_size"))),
        tokens(args.in[0].dims[0]),
        q_width(args.in[0].dims[1]),
        kv_width(args.in[1].dims[1]),
        heads(q_width / size),
        kv_heads(kv_width / size),
        group(args.in[0].global[1] / std::max<int64_t>(1, args.in[1].global[1])),
        first_q(args.in[0].begin[1] / size),
        first_kv(args.in[1].begin[1] / size),
        window(reach(attr_or(*args.attrs, "window", 0))),
        scale(static_cast<float>(
            attr_or(*args.attrs, "scale", 1 / std::sqrt(static_cast<double>(size))))),
        cap(static_cast<float>(attr_or(*args.attrs, "soft_cap", 0))) {}

  // The query heads here of key/value head g begin with this; those of g + 1 follow them.
  int64_t first_head(int64_t g) const {
    return std::clamp<int64_t>((first_kv + g) * group - first_q, 0, heads);
  }
  // The nth of them, or -1.
  int64_t head(int64_t g, int64_t nth) const {
    const int64_t h = first_head(g) + nth;
    return h < first_head(g + 1) ? h : -1;
  }
  // The first token of its sequence that token i of it attends to.
  int64_t first(int64_t i) const { return std::max<int64_t>(0, i - window + 1); }
  // Pairs (token, token attended to) of the first n tokens of a sequence.
  int64_t pairs(int64_t n) const {
    const int64_t ramp = std::min(n, window);
    return ramp * (ramp + 1) / 2 + (n - ramp) * window;
  }

 private:
  int64_t reach(double w) const {
    const auto all = static_cast<double>(std::max<int64_t>(1, tokens));
    return static_cast<int64_t>(w == 0 ? all : std::min(w, all));
  }
};

// Takes aligned pieces of the workspace one after the other.
class Carver {
 public:
  explicit Carver(void* memory) : at_(reinterpret_cast<uintptr_t>(memory)) {}
  template <class T>
  T* take(int64_t count) {
    at_ = (at_ + 63) / 64 * 64;
    T* piece = reinterpret_cast<T*>(at_);
    at_ += static_cast<uintptr_t>(count) * sizeof(T);
    return piece;
  }

 private:
  uintptr_t at_;
};

// The sequences of a call: runs of one id. `starts` has room for tokens + 1.
struct Sequences {
  const int32_t* starts;
  int64_t count;
  int64_t begin(int64_t s) const { return starts[s]; }
  int64_t length(int64_t s) const { return starts[s + 1] - starts[s]; }
};
inline Sequences find_sequences(const int32_t* ids, int64_t tokens, int32_t* starts) {
  int64_t count = 0;
  for (int64_t i = 0; i < tokens; ++i)
    if (i == 0 || ids[i] != ids[i - 1]) starts[count++] = static_cast<int32_t>(i);
  starts[count] = static_cast<int32_t>(tokens);
  return {starts, count};
}

// A thread's share of a list of items with costs: those whose middles lie in its part of the whole
// cost. Every thread goes through the same list.
class Share {
 public:
  Share(int64_t total, int thread, int threads)
      : begin_(part(total, thread, threads)),
        end_(thread + 1 == threads ? INT64_MAX : part(total, thread + 1, threads)) {}
  // Is the next item, or run of items, of this thread?
  bool take(int64_t cost) {
    const int64_t middle = at_ + cost / 2;
    at_ += cost;
    return begin_ <= middle && middle < end_;
  }
  // Passes over items of this whole cost if none of them can be of this thread.
  bool skip(int64_t cost) {
    if (at_ + cost > begin_ && at_ < end_) return false;
    at_ += cost;
    return true;
  }

 private:
  static int64_t part(int64_t total, int i, int threads) {
    return static_cast<int64_t>(static_cast<double>(total) * i / threads);
  }
  int64_t begin_, end_, at_ = 0;
};

// Threads worth waking for so many pairs: each gets some microseconds of work at least.
inline int worthwhile(int threads, int64_t pairs, int64_t flops_per_pair) {
  constexpr double kFlops = 1 << 18;
  const double most = static_cast<double>(pairs) * static_cast<double>(flops_per_pair) / kFlops;
  return static_cast<int>(std::clamp<double>(most, 1, threads));
}

}  // namespace plait
