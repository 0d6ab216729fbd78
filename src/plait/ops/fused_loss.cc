// The head of a language model: logits, their log-sum-exp and the labels' logits, and the gradient
// of all that, for some tokens at a time, so that no [T, V] tensor exists (as in Hsu et al., "Liger
// kernel", 2024). x [T, D], w [V, D], labels i32 [T], g [T] the gradient of nll -> nll [T], dx, dw.
//
// With the gradient at hand, everything follows from one product for the logits and two for dx and
// dw; where the vocabulary is split, the log-sum-exp has to be reduced first, and nothing is fused.
#include "plait/ops/fused.h"
#include "plait/ops/gemm_scratch.h"
#include "plait/ops/loss_chunks.h"

namespace plait {
namespace {

#define PLAIT_NLL "l = matmul(x, w) trans_b=1; z = row_lse(l); p = pick(l, labels); nll = sub(z, p)"
#define PLAIT_NLL_GRAD_X                                                         \
  PLAIT_NLL                                                                      \
  "; dp = scale(g) by=-1; a = pick_grad(l, labels, dp); b = lse_grad(l, z, g); " \
  "dl = add(a, b); dx = matmul(dl, w)"
#define PLAIT_NLL_GRAD PLAIT_NLL_GRAD_X "; dw = matmul(dl, x) trans_a=1 wide=*"

// Results are sums over a vocabulary, whose terms cancel.
constexpr double kGradientError = 32;
// The gradient of the logits is rounded to bf16. Errors of many terms add up as the terms do: their
// sum strays by a few times its own spread, which is less than the largest result.
// nll is made before.
constexpr double kRoundedInside[] = {0, 4, 4};

// The logits of a chunk of tokens, and what their products need.
template <size_t first>
int64_t workspace(const Attrs&, const Types& in, int threads) {
  if (in[first].dtype == Dtype::f64) return 0;  // the reference brings its own memory
  const int64_t tokens = in[first].dims[0].size, d = in[first].dims[1].size;
  const int64_t v = in[first + 1].dims[0].size, chunk = loss_chunk_tokens(tokens, v);
  const int64_t products = std::max({gemm_scratch_bytes(chunk, v, d, threads, Dtype::f32),
                                     gemm_scratch_bytes(chunk, d, v, threads, in[first].dtype),
                                     gemm_scratch_bytes(v, d, chunk, threads, Dtype::f32)});
  return checked_add(loss_chunk_bytes(tokens, v), products);
}

// And dw in f32 where it is to be rounded.
int64_t grad_workspace(const Attrs& attrs, const Types& in, int threads) {
  const int64_t bytes = workspace<0>(attrs, in, threads);
  if (in[0].dtype != Dtype::bf16 || attr_or(attrs, kWide, 0) != 0) return bytes;
  return checked_add(bytes, loss_sum_bytes(in[1].dims[0].size, in[1].dims[1].size));
}

std::vector<OpSample> samples(bool sum, bool gradient) {
  const Extent t{"T", 7}, d{"D", 4}, v{"V", 9};
  OpSample s;
  if (sum) s.in.push_back({Dtype::f64, {v, d}});
  s.in.push_back({Dtype::f64, {t, d}});
  s.in.push_back({Dtype::f64, {v, d}});
  s.in.push_back({Dtype::i32, {t}});
  if (gradient) s.in.push_back({Dtype::f64, {t}});
  s.integers = [](size_t, int64_t i) { return static_cast<int32_t>(i * 5 % 9); };
  return {s};
}

}  // namespace

OpDef linear_nll_op() {
  OpDef op = fused_op("linear_nll", "negative log-likelihood of labels under a linear head",
                      "x, w, labels -> nll: " PLAIT_NLL);
  op.workspace = workspace<0>;
  op.samples = [] { return samples(false, false); };
  return op;
}

OpDef linear_nll_grad_op() {
  OpDef op = fused_op("linear_nll_grad", "the same with its gradients",
                      "x, w, labels, g -> nll, dx, dw: " PLAIT_NLL_GRAD);
  op.fast_error = kGradientError;
  op.bf16_error = kRoundedInside;
  op.workspace = grad_workspace;
  op.samples = [] {
    std::vector<OpSample> all = samples(false, true);
    all.push_back(all[0]);
    all.back().attrs[kWide] = 1;
    return all;
  };
  return op;
}

OpDef linear_nll_grad_x_op() {
  OpDef op = fused_op("linear_nll_grad_x", "the same with the gradient of x alone",
                      "x, w, labels, g -> nll, dx: " PLAIT_NLL_GRAD_X);
  op.fast_error = kGradientError;
  op.bf16_error = std::span(kRoundedInside).first(2);
  op.workspace = workspace<0>;
  op.samples = [] { return samples(false, true); };
  return op;
}

OpDef linear_nll_grad_accumulate_op() {
  OpDef op =
      fused_op("linear_nll_grad_accumulate", "linear_nll_grad, its dw added to a sum in place",
               "s, x, w, labels, g -> nll, dx, sum: " PLAIT_NLL_GRAD "; sum = accumulate(s, dw)");
  op.in_place = {{2, 0}};
  op.fast_error = kGradientError;
  op.bf16_error = kRoundedInside;
  op.workspace = workspace<1>;
  op.samples = [] { return samples(true, true); };
  return op;
}

}  // namespace plait
