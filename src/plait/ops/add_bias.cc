// add_bias: y[t] = x[t] + b   x [T, N], b [N] -> [T, N]
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  const int64_t tokens = args.in[0].dims[0], n = args.in[0].dims[1];
  const T* x = args.in[0].as<T>();
  const T* b = args.in[1].as<T>();
  T* y = args.out[0].as<T>();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < n; ++j) y[t * n + j] = x[t * n + j] + b[j];
}

void grad(GradContext& g) {
  g.add(0, g.d_out(0));
  if (g.needs(1)) g.add(1, g.emit("sum_rows", {g.d_out(0)})[0]);
}

std::vector<OpSample> samples() {
  const Extent t{"T", 7}, n{"F", 6, 2};
  return one_sample({{Dtype::f64, {t, n}}, {Dtype::f64, {n}}});
}

}  // namespace

OpDef add_bias_op() {
  OpDef op;
  op.name = "add_bias";
  op.summary = "adds a bias to every row";
  op.rule = fixed_rule<"t n, ^n -> t n">;
  op.grad = grad;
  op.flops = per_element<1>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  return op;
}

}  // namespace plait
