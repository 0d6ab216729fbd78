// row_lse: y[t] = log sum over v of exp x[t, v]   x [T, V] -> [T]
// Splitting V gives pending log-sum-exps; no columns at all give -infinity.
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  using std::exp;
  using std::log;
  const T lowest = T(-std::numeric_limits<double>::infinity());
  const int64_t tokens = args.in[0].dims[0], v = args.in[0].dims[1];
  for (int64_t t = 0; t < tokens; ++t) {
    const T* x = args.in[0].as<T>() + t * v;
    T& y = args.out[0].as<T>()[t];
    T top = lowest, sum = T(0);
    for (int64_t j = 0; j < v; ++j) top = x[j] > top ? x[j] : top;
    y = top;
    if (top == lowest) continue;
    for (int64_t j = 0; j < v; ++j) sum += exp(x[j] - top);
    y = top + log(sum);
  }
}

int64_t flops(const Attrs&, const Types& in) {
  const int64_t v = in[0].dims[1].size;
  return v == 0 ? 0 : checked_mul(in[0].dims[0].size, checked_mul(3, v) + 2);
}

template <class T>
void grad_reference(const KernelArgs& args) {
  using std::exp;
  const int64_t tokens = args.in[0].dims[0], v = args.in[0].dims[1];
  const T* x = args.in[0].as<T>();
  const T* lse = args.in[1].as<T>();
  const T* g = args.in[2].as<T>();
  T* dx = args.out[0].as<T>();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < v; ++j) dx[t * v + j] = g[t] * exp(x[t * v + j] - lse[t]);
}

void grad(GradContext& g) { g.add(0, g.emit("lse_grad", {g.in(0), g.out(0), g.d_out(0)})[0]); }

TensorType rows() { return {Dtype::f64, {{"T", 5}, {"V", 7}}}; }
TensorType column() { return {Dtype::f64, {{"T", 5}}}; }

}  // namespace

OpDef row_lse_op() {
  OpDef op;
  op.name = "row_lse";
  op.summary = "log-sum-exp of every row";
  op.rule = fixed_rule<"t v -> ^t ; v lse">;
  op.grad = grad;
  op.flops = flops;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return one_sample({rows()}); };
  return op;
}

OpDef lse_grad_op() {
  OpDef op;
  op.name = "lse_grad";
  op.summary = "gradient of row_lse: g softmax(x), from the saved log-sum-exp";
  op.rule = fixed_rule<"t v, ^t, ^t -> t v">;
  op.no_grad = kIsGradient;
  op.flops = per_element<3>;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = [] { return one_sample({rows(), column(), column()}); };
  return op;
}

}  // namespace plait
