// rms_norm: y = x r w with r = 1 / sqrt(mean(x^2) + eps)   x [T, D], w [D] -> [T, D]
// (Zhang and Sennrich, "Root mean square layer normalization", 2019)
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
T inverse_rms(const T* x, int64_t d, double eps) {
  using std::sqrt;
  T sum = T(0);
  for (int64_t j = 0; j < d; ++j) sum += x[j] * x[j];
  return T(1) / sqrt(sum / T(static_cast<double>(d)) + T(eps));
}

template <class T>
void reference(const KernelArgs& args) {
  const int64_t tokens = args.in[0].dims[0], d = args.in[0].dims[1];
  const T* w = args.in[1].as<T>();
  for (int64_t t = 0; t < tokens; ++t) {
    const T* x = args.in[0].as<T>() + t * d;
    T* y = args.out[0].as<T>() + t * d;
    const T r = inverse_rms(x, d, attr(*args.attrs, "eps"));
    for (int64_t j = 0; j < d; ++j) y[j] = x[j] * r * w[j];
  }
}

// dx = r (w dy - x r^2 mean(w dy x))
template <class T>
void grad_x_reference(const KernelArgs& args) {
  const int64_t tokens = args.in[0].dims[0], d = args.in[0].dims[1];
  const T* w = args.in[1].as<T>();
  for (int64_t t = 0; t < tokens; ++t) {
    const T* x = args.in[0].as<T>() + t * d;
    const T* dy = args.in[2].as<T>() + t * d;
    T* dx = args.out[0].as<T>() + t * d;
    const T r = inverse_rms(x, d, attr(*args.attrs, "eps"));
    T sum = T(0);
    for (int64_t j = 0; j < d; ++j) sum += w[j] * dy[j] * x[j];
    const T common = sum * r * r / T(static_cast<double>(d));
    for (int64_t j = 0; j < d; ++j) dx[j] = r * (w[j] * dy[j] - x[j] * common);
  }
}

// dw = sum over tokens of dy x r
template <class T>
void grad_w_reference(const KernelArgs& args) {
  const int64_t tokens = args.in[0].dims[0], d = args.in[0].dims[1];
  T* dw = args.out[0].as<T>();
  std::fill_n(dw, d, T(0));
  for (int64_t t = 0; t < tokens; ++t) {
    const T* x = args.in[0].as<T>() + t * d;
    const T* dy = args.in[1].as<T>() + t * d;
    const T r = inverse_rms(x, d, attr(*args.attrs, "eps"));
    for (int64_t j = 0; j < d; ++j) dw[j] += dy[j] * x[j] * r;
  }
}

template <int64_t per_value, int64_t per_row>
int64_t flops(const Attrs&, const Types& in) {
  return checked_mul(in[0].dims[0].size, checked_mul(per_value, in[0].dims[1].size) + per_row);
}

void grad(GradContext& g) {
  const ValueId x = g.in(0), w = g.in(1), dy = g.d_out(0);
  if (g.needs(0)) g.add(0, g.emit("rms_norm_grad_x", {x, w, dy}, g.attrs())[0]);
  if (g.needs(1)) g.add(1, g.emit("rms_norm_grad_w", {x, dy}, g.attrs())[0]);
}

TensorType rows() { return {Dtype::f64, {{"T", 7}, {"D", 6, 2}}}; }
TensorType weight() { return {Dtype::f64, {{"D", 6, 2}}}; }
Attrs sample_attrs() { return {{"eps", 1e-5}}; }

}  // namespace

OpDef rms_norm_op() {
  OpDef op;
  op.name = "rms_norm";
  op.attributes = {"eps"};
  op.summary = "rows over their root mean square, times a weight";
  op.rule = fixed_rule<"t d!, d! -> t d!">;
  op.grad = grad;
  op.flops = flops<4, 4>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return one_sample({rows(), weight()}, sample_attrs()); };
  return op;
}

OpDef rms_norm_grad_x_op() {
  OpDef op;
  op.name = "rms_norm_grad_x";
  op.attributes = {"eps"};
  op.summary = "gradient of rms_norm's input";
  op.rule = fixed_rule<"t d!, d!, t d! -> t d!">;
  op.no_grad = kIsGradient;
  op.flops = flops<9, 7>;
  op.reference = PLAIT_REFERENCE(grad_x_reference);
  op.samples = [] { return one_sample({rows(), weight(), rows()}, sample_attrs()); };
  return op;
}

OpDef rms_norm_grad_w_op() {
  OpDef op;
  op.name = "rms_norm_grad_w";
  op.attributes = {"eps"};
  op.summary = "gradient of rms_norm's weight";
  op.rule = fixed_rule<"t d!, t d! -> d!">;
  op.no_grad = kIsGradient;
  op.flops = flops<5, 4>;
  op.reference = PLAIT_REFERENCE(grad_w_reference);
  op.samples = [] { return one_sample({rows(), rows()}, sample_attrs()); };
  return op;
}

}  // namespace plait
