// layer_norm: y = n w + b with n = (x - mean(x)) / sqrt(variance(x) + eps)
//   x [T, D], w [D], b [D] -> [T, D]   (Ba et al., "Layer normalization", 2016)
#include "plait/ops/ops.h"
#include "plait/ops/row_blocks.h"

namespace plait {
namespace {

template <class T>
struct Moments {
  T mean, inverse_deviation;
};

template <class T>
Moments<T> moments(const T* x, int64_t d, double eps) {
  using std::sqrt;
  const T count = T(static_cast<double>(d));
  T sum = T(0), squares = T(0);
  for (int64_t j = 0; j < d; ++j) sum += x[j];
  const T mean = sum / count;
  for (int64_t j = 0; j < d; ++j) {
    const T centred = x[j] - mean;
    squares += centred * centred;
  }
  return {mean, T(1) / sqrt(squares / count + T(eps))};
}

template <class T>
void reference(const KernelArgs& args) {
  const int64_t tokens = args.in[0].dims[0], d = args.in[0].dims[1];
  const T* w = args.in[1].as<T>();
  const T* b = args.in[2].as<T>();
  for (int64_t t = 0; t < tokens; ++t) {
    const T* x = args.in[0].as<T>() + t * d;
    T* y = args.out[0].as<T>() + t * d;
    const auto [mean, r] = moments(x, d, attr(*args.attrs, "eps"));
    for (int64_t j = 0; j < d; ++j) y[j] = (x[j] - mean) * r * w[j] + b[j];
  }
}

// dx = r (g - mean(g) - n mean(g n)) with g = w dy
template <class T>
void grad_x_reference(const KernelArgs& args) {
  const int64_t tokens = args.in[0].dims[0], d = args.in[0].dims[1];
  const T count = T(static_cast<double>(d));
  const T* w = args.in[1].as<T>();
  for (int64_t t = 0; t < tokens; ++t) {
    const T* x = args.in[0].as<T>() + t * d;
    const T* dy = args.in[2].as<T>() + t * d;
    T* dx = args.out[0].as<T>() + t * d;
    const auto [mean, r] = moments(x, d, attr(*args.attrs, "eps"));
    T sum_g = T(0), sum_gn = T(0);
    for (int64_t j = 0; j < d; ++j) {
      const T g = w[j] * dy[j];
      sum_g += g;
      sum_gn += g * ((x[j] - mean) * r);
    }
    const T mean_g = sum_g / count, mean_gn = sum_gn / count;
    for (int64_t j = 0; j < d; ++j)
      dx[j] = r * (w[j] * dy[j] - mean_g - (x[j] - mean) * r * mean_gn);
  }
}

// dw = sum over tokens of dy n
template <class T>
void grad_w_reference(const KernelArgs& args) {
  const int64_t tokens = args.in[0].dims[0], d = args.in[0].dims[1];
  T* dw = args.out[0].as<T>();
  std::fill_n(dw, d, T(0));
  for (int64_t t = 0; t < tokens; ++t) {
    const T* x = args.in[0].as<T>() + t * d;
    const T* dy = args.in[1].as<T>() + t * d;
    const auto [mean, r] = moments(x, d, attr(*args.attrs, "eps"));
    for (int64_t j = 0; j < d; ++j) dw[j] += dy[j] * ((x[j] - mean) * r);
  }
}

template <int64_t per_value, int64_t per_row>
int64_t flops(const Attrs&, const Types& in) {
  return checked_mul(in[0].dims[0].size, checked_mul(per_value, in[0].dims[1].size) + per_row);
}

void grad(GradContext& g) {
  const ValueId x = g.in(0), w = g.in(1), dy = g.d_out(0);
  if (g.needs(0)) g.add(0, g.emit("layer_norm_grad_x", {x, w, dy}, g.attrs())[0]);
  if (g.needs(1)) g.add(1, g.emit("layer_norm_grad_w", {x, dy}, g.attrs())[0]);
  if (g.needs(2)) g.add(2, g.emit("sum_rows", {dy})[0]);
}

TensorType rows() { return {Dtype::f64, {{"T", 7}, {"D", 6, 2}}}; }
TensorType weight() { return {Dtype::f64, {{"D", 6, 2}}}; }
Attrs sample_attrs() { return {{"eps", 1e-5}}; }

}  // namespace

OpDef layer_norm_op() {
  OpDef op;
  op.name = "layer_norm";
  op.attributes = {"eps"};
  op.summary = "rows to mean 0 and deviation 1, times a weight, plus a bias";
  op.rule = fixed_rule<"t d!, ^d!, ^d! -> t d!">;
  op.grad = grad;
  op.flops = flops<8, 5>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return one_sample({rows(), weight(), weight()}, sample_attrs()); };
  return op;
}

OpDef layer_norm_grad_x_op() {
  OpDef op;
  op.name = "layer_norm_grad_x";
  op.attributes = {"eps"};
  op.summary = "gradient of layer_norm's input";
  op.rule = fixed_rule<"t d!, ^d!, t d! -> t d!">;
  op.no_grad = kIsGradient;
  op.flops = flops<17, 7>;
  op.reference = PLAIT_REFERENCE(grad_x_reference);
  op.samples = [] { return one_sample({rows(), weight(), rows()}, sample_attrs()); };
  return op;
}

OpDef layer_norm_grad_w_op() {
  OpDef op;
  op.name = "layer_norm_grad_w";
  op.attributes = {"eps"};
  op.summary = "gradient of layer_norm's weight";
  op.rule = fixed_rule<"t d!, t d! -> ^d!">;
  op.no_grad = kIsGradient;
  op.flops = flops<8, 5>;
  op.workspace = [](const Attrs&, const Types& in, int) {
    return row_blocks_bytes(in[0].dims[0].size, in[0].dims[1].size);
  };
  op.reference = PLAIT_REFERENCE(grad_w_reference);
  op.samples = [] { return one_sample({rows(), rows()}, sample_attrs()); };
  return op;
}

}  // namespace plait
