// f32 attention, one (sequence, head) at a time: scores as a dense L x L matrix in the workspace,
// products by oneDNN. Semantics and shapes: ops/attention.cc.
#include <algorithm>
#include <cmath>

#include "plait/kernels/cpu/kernels.h"

namespace plait {

namespace {

struct Heads {
  int64_t size, tokens, q_width, kv_width, heads, group;
  float scale;
  explicit Heads(const KernelArgs& args)
      : size(static_cast<int64_t>(attr(*args.attrs, "head_size"))),
        tokens(args.in[0].dims[0]),
        q_width(args.in[0].dims[1]),
        kv_width(args.in[1].dims[1]),
        heads(q_width / size),
        group(kv_width == 0 ? 1 : q_width / kv_width),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(size)))) {}
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
      const int64_t kv = t * n.kv_width + h / n.group * n.size;
      sgemm(false, true, length, length, n.size, n.scale, q + at, n.q_width, k + kv, n.kv_width, 0,
            scores, length);
      for (int64_t i = 0; i < length; ++i) {
        float* row = scores + i * length;
        const float top = *std::max_element(row, row + i + 1);
        float sum = 0;
        for (int64_t j = 0; j <= i; ++j) sum += row[j] = std::exp(row[j] - top);
        const float inverse = 1 / sum;
        for (int64_t j = 0; j <= i; ++j) row[j] *= inverse;
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
  for_each_sequence(args.in[3].as<int32_t>(), n.tokens, [&](int64_t t, int64_t length) {
    float* ds = p + length * length;
    for (int64_t h = 0; h < n.heads; ++h) {
      const int64_t at = t * n.q_width + h * n.size;
      const int64_t kv = t * n.kv_width + h / n.group * n.size;
      const float first = h % n.group == 0 ? 0 : 1;  // later query heads add to the same key head
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
        for (int64_t j = 0; j <= i; ++j) {
          pi[j] = std::exp(pi[j] - l);
          si[j] = pi[j] * (si[j] - delta) * n.scale;
        }
        std::fill(pi + i + 1, pi + length, 0.0f);
        std::fill(si + i + 1, si + length, 0.0f);
      }
      sgemm(true, false, length, n.size, length, 1, p, length, d_o + at, n.q_width, first, dv + kv,
            n.kv_width);
      sgemm(true, false, length, n.size, length, 1, ds, length, q + at, n.q_width, first, dk + kv,
            n.kv_width);
      sgemm(false, false, length, n.size, length, 1, ds, length, k + kv, n.kv_width, 0, dq + at,
            n.q_width);
    }
  });
}

}  // namespace plait
