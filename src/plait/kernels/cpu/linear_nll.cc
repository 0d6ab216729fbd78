// The head's loss and its gradients (ops/fused_loss.cc), a chunk of tokens at a time: logits by
// gemm into scratch, turned there into their own gradients, and multiplied on. Logits are f32;
// their gradients are of x's type, as they are when nothing is fused.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/linear_nll.cc"
#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include <array>
#include <cmath>

#include "hwy/foreach_target.h"
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/gemm.h"
#include "plait/kernels/cpu/math-inl.h"
#include "plait/ops/loss_chunks.h"
#include "plait/ops/ops.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

// nll of one row of logits. With `gradient`, g (softmax - one at the label) is written there; it
// may be the row itself, or begin where the row begins.
template <class T>
HWY_INLINE float nll_of_row(float* row, int64_t n, int64_t label, T* gradient, float g) {
  const float wanted = row[label];
  VF most = set(row[0]);
  walk(0, n, [&](auto io, int64_t i) HWY_ATTR {
    most = hn::Max(most, io.or_else(io.load(row + i), most));
  });
  const float top = hn::GetLane(hn::MaxOfLanes(F32(), most));
  const VF tops = set(top);
  const float sum = total(n, [=](auto io, int64_t i, VF s) HWY_ATTR {
    const VF e = io.or_else(exp_small(hn::Sub(io.load(row + i), tops)), zero());
    if (gradient != nullptr) io.store(e, row + i);
    return hn::Add(s, e);
  });
  if (gradient != nullptr) {
    const float at_label = row[label] * (g / sum) - g;
    const VF by = set(g / sum);
    walk(0, n, [=](auto io, int64_t i) HWY_ATTR {
      io.store(hn::Mul(io.load(row + i), by), gradient + i);
    });
    Rest{1}.store(set(at_label), gradient + label);
  }
  return top + std::log(sum) - wanted;
}

// `g` is null for the loss alone; rows are tokens from `first` on. A gradient in bf16 takes the
// first half of its row.
void nll_of_rows(const KernelArgs& args, float* logits, bool narrow, int64_t first, int64_t rows,
                 int64_t vocabulary, const int32_t* labels, const float* g, float* nll) {
  for_rows(args.threads, rows, vocabulary, [=](int64_t i) HWY_ATTR {
    float* row = logits + i * vocabulary;
    float* wide_gradient = g == nullptr ? nullptr : row;
    const float by = g == nullptr ? 0 : g[first + i];
    const int64_t label = labels[first + i];
    nll[first + i] =
        narrow ? nll_of_row(row, vocabulary, label, reinterpret_cast<uint16_t*>(wide_gradient), by)
               : nll_of_row(row, vocabulary, label, wide_gradient, by);
  });
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {

void fast_to_bf16(const KernelArgs& args);
HWY_EXPORT(nll_of_rows);

namespace {

int64_t width(const TensorView& x) { return std::max<int64_t>(1, x.dims[1]); }

Matrix matrix(const TensorView& x, int64_t first_row, bool transposed) {
  const int64_t begin = first_row * x.dims[1];
  return {static_cast<const std::byte*>(x.data) + dtype_bytes(x.dtype, begin), x.dtype, width(x),
          transposed};
}

// `first` operand is x; dw may be missing. It is `adding` to what dw holds, or writes it anew.
void linear_nll(const KernelArgs& args, size_t first, bool gradient, bool with_dw, bool adding) {
  const TensorView &x = args.in[first], &w = args.in[first + 1], &labels = args.in[first + 2];
  const int64_t tokens = x.dims[0], d = x.dims[1], v = w.dims[0];
  for (int64_t t = 0; t < tokens; ++t)
    check_id("linear_nll", labels.as<int32_t>()[t], labels.begin[0] + t, v);
  const int64_t chunk = loss_chunk_tokens(tokens, v);
  const bool narrow = x.dtype == Dtype::bf16;
  auto* logits = static_cast<float*>(args.workspace);
  void* scratch = static_cast<std::byte*>(args.workspace) + loss_chunk_bytes(tokens, v);
  const auto product = [&](int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b,
                           void* c, Dtype type, const void* addend) {
    Epilogue e;
    e.addend = addend;
    e.addend_dtype = type;
    e.addend_ld = std::max<int64_t>(1, n);
    gemm(m, n, k, 1, a, b, c, type, std::max<int64_t>(1, n), e, scratch, args.threads);
  };
  if (with_dw && tokens == 0) {
    const TensorView& dw = args.out[2];
    if (!adding) std::fill_n(dw.as<float>(), dw.elements(), 0.0f);
    if (adding && dw.data != args.in[0].data)
      std::copy_n(args.in[0].as<float>(), dw.elements(), dw.as<float>());
  }
  for (int64_t t = 0; t < tokens; t += chunk) {
    const int64_t rows = std::min(chunk, tokens - t);
    product(rows, v, d, matrix(x, t, false), matrix(w, 0, true), logits, Dtype::f32, nullptr);
    HWY_DYNAMIC_DISPATCH(nll_of_rows)
    (args, logits, narrow, t, rows, v, labels.as<int32_t>(),
     gradient ? args.in[first + 3].as<float>() : nullptr, args.out[0].as<float>());
    if (!gradient) continue;
    const Matrix dl{logits, x.dtype, std::max<int64_t>(1, narrow ? 2 * v : v), false};
    const TensorView& dx = args.out[1];
    auto* to = static_cast<std::byte*>(dx.data) + dtype_bytes(dx.dtype, t * d);
    product(rows, d, v, dl, matrix(w, 0, false), to, dx.dtype, nullptr);
    if (!with_dw) continue;
    const Matrix transposed{dl.data, dl.dtype, dl.ld, true};
    void* dw = args.out[2].data;
    product(v, d, rows, transposed, matrix(x, t, false), dw, Dtype::f32,
            t > 0 ? dw : (adding ? args.in[0].data : nullptr));
  }
}

}  // namespace

void fast_linear_nll(const KernelArgs& args) { linear_nll(args, 0, false, false, false); }
// Chunks are added up in f32: where dw is bf16, in the workspace.
void fast_linear_nll_grad(const KernelArgs& args) {
  const TensorView& dw = args.out[2];
  if (dw.dtype != Dtype::bf16) return linear_nll(args, 0, true, true, false);
  std::array<TensorView, 3> out = {args.out[0], args.out[1], dw};
  out[2].dtype = Dtype::f32;
  out[2].data = args.workspace;
  KernelArgs wide = args;
  wide.out = out;
  wide.workspace = static_cast<std::byte*>(args.workspace) + loss_sum_bytes(dw.dims[0], dw.dims[1]);
  linear_nll(wide, 0, true, true, false);
  KernelArgs rounding = args;
  rounding.in = std::span(out).last(1);
  rounding.out = args.out.last(1);
  fast_to_bf16(rounding);
}
void fast_linear_nll_grad_x(const KernelArgs& args) { linear_nll(args, 0, true, false, false); }
void fast_linear_nll_grad_accumulate(const KernelArgs& args) {
  linear_nll(args, 1, true, true, true);
}

}  // namespace plait
#endif
