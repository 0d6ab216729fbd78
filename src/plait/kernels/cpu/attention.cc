// f32 attention, one (sequence, head) at a time: scores as a dense L x L matrix in the workspace,
// products by oneDNN. Semantics and shapes: ops/attention.cc.
#include <algorithm>
#include <cmath>

#include "plait/kernels/cpu/kernels.h"

namespace plait {

namespace {

struct Heads {
  int64_t size, tokens, q_width, kv_width, heads, group, first_q, first_kv, window;
  float scale, cap;
  explicit Heads(const KernelArgs& args)
      : size(static_cast<int64_t>(attr(*args.attrs, "head_size"))),
        tokens(args.in[0].dims[0]),
        q_width(args.in[0].dims[1]),
        kv_width(args.in[1].dims[1]),
        heads(q_width / size),
        group(args.in[0].global[1] / std::max<int64_t>(1, args.in[1].global[1])),
        first_q(args.in[0].begin[1] / size),
        first_kv(args.in[1].begin[1] / size),
        window(static_cast<int64_t>(attr_or(*args.attrs, "window", 0))),
        scale(static_cast<float>(
            attr_or(*args.attrs, "scale", 1 / std::sqrt(static_cast<double>(size))))),
        cap(static_cast<float>(attr_or(*args.attrs, "soft_cap", 0))) {}
  // The key/value head of query head h, both counted here.
  int64_t kv(int64_t h) const { return (first_q + h) / group - first_kv; }
  // The first token of its sequence that token i of it attends to.
  int64_t first(int64_t i) const { return window == 0 ? 0 : std::max<int64_t>(0, i - window + 1); }
};

// Calls f(first token, tokens) for every run of one sequence id.
template <class F>
void for_each_sequence(const int32_t* sequences, int64_t tokens, F&& f) {
  for (int64_t begin = 0; begin < tokens;) {
    int64_t end = begin + 1;
    while (end < tokens && sequences[end] == sequences[begin]) ++end;
    f(begin, end - begin);
    begin = end;
  }
}

}  // namespace

void fast_attention(const KernelArgs& args) {
  const Heads n(args);
  auto* scores = static_cast<float*>(args.workspace);
  const float *q = args.in[0].as<float>(), *k = args.in[1].as<float>(), *v = args.in[2].as<float>();
  float *o = args.out[0].as<float>(), *lse = args.out[1].as<float>();
  for_each_sequence(args.in[3].as<int32_t>(), n.tokens, [&](int64_t t, int64_t length) {
    for (int64_t h = 0; h < n.heads; ++h) {
      const int64_t at = t * n.q_width + h * n.size;
      const int64_t kv = t * n.kv_width + n.kv(h) * n.size;
      sgemm(false, true, length, length, n.size, n.scale, q + at, n.q_width, k + kv, n.kv_width, 0,
            scores, length);
      for (int64_t i = 0; i < length; ++i) {
        float* row = scores + i * length;
        const int64_t first = n.first(i);
        if (n.cap != 0)
          for (int64_t j = first; j <= i; ++j) row[j] = n.cap * std::tanh(row[j] / n.cap);
        const float top = *std::max_element(row + first, row + i + 1);
        float sum = 0;
        for (int64_t j = first; j <= i; ++j) sum += row[j] = std::exp(row[j] - top);
        const float inverse = 1 / sum;
        for (int64_t j = first; j <= i; ++j) row[j] *= inverse;
        std::fill(row, row + first, 0.0f);
        std::fill(row + i + 1, row + length, 0.0f);
        lse[(t + i) * n.heads + h] = top + std::log(sum);
      }
      sgemm(false, false, length, n.size, length, 1, scores, length, v + kv, n.kv_width, 0, o + at,
            n.q_width);
    }
  });
}

void fast_attention_grad(const KernelArgs& args) {
  const Heads n(args);
  const float *q = args.in[0].as<float>(), *k = args.in[1].as<float>(), *v = args.in[2].as<float>();
  const float *o = args.in[4].as<float>(), *lse = args.in[5].as<float>();
  const float* d_o = args.in[6].as<float>();
  float *dq = args.out[0].as<float>(), *dk = args.out[1].as<float>(), *dv = args.out[2].as<float>();
  auto* p = static_cast<float*>(args.workspace);
  // Key/value heads that none of the query heads here reads have a gradient too: 0.
  if (n.heads * n.size * args.in[1].global[1] != n.kv_width * args.in[0].global[1])
    for (float* d : {dk, dv}) std::fill_n(d, n.tokens * n.kv_width, 0.0f);
  for_each_sequence(args.in[3].as<int32_t>(), n.tokens, [&](int64_t t, int64_t length) {
    float* ds = p + length * length;
    for (int64_t h = 0; h < n.heads; ++h) {
      const int64_t at = t * n.q_width + h * n.size;
      const int64_t kv = t * n.kv_width + n.kv(h) * n.size;
      // Later query heads add to the same key/value head.
      const float beta = h == 0 || n.kv(h) != n.kv(h - 1) ? 0 : 1;
      sgemm(false, true, length, length, n.size, n.scale, q + at, n.q_width, k + kv, n.kv_width, 0,
            p, length);
      sgemm(false, true, length, length, n.size, 1, d_o + at, n.q_width, v + kv, n.kv_width, 0, ds,
            length);
      for (int64_t i = 0; i < length; ++i) {
        const float l = lse[(t + i) * n.heads + h];
        const float *oi = o + at + i * n.q_width, *di = d_o + at + i * n.q_width;
        float delta = 0;
        for (int64_t c = 0; c < n.size; ++c) delta += oi[c] * di[c];
        float *pi = p + i * length, *si = ds + i * length;
        const int64_t first = n.first(i);
        std::fill(pi, pi + first, 0.0f);
        std::fill(si, si + first, 0.0f);
        for (int64_t j = first; j <= i; ++j) {
          const float t_cap = n.cap == 0 ? 0 : std::tanh(pi[j] / n.cap);
          const float s = n.cap == 0 ? pi[j] : n.cap * t_cap;
          pi[j] = std::exp(s - l);
          si[j] = pi[j] * (si[j] - delta) * n.scale * (1 - t_cap * t_cap);
        }
        std::fill(pi + i + 1, pi + length, 0.0f);
        std::fill(si + i + 1, si + length, 0.0f);
      }
      sgemm(true, false, length, n.size, length, 1, p, length, d_o + at, n.q_width, beta, dv + kv,
            n.kv_width);
      sgemm(true, false, length, n.size, length, 1, ds, length, q + at, n.q_width, beta, dk + kv,
            n.kv_width);
      sgemm(false, false, length, n.size, length, 1, ds, length, k + kv, n.kv_width, 0, dq + at,
            n.q_width);
    }
  });
}

}  // namespace plait
