// mul_scalar: y = x s   x of any shape, s scalar -> like x
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  const T* x = args.in[0].as<T>();
  const T s = *args.in[1].as<T>();
  T* y = args.out[0].as<T>();
  for (int64_t i = 0, n = args.in[0].elements(); i < n; ++i) y[i] = x[i] * s;
}

std::string rule(const Attrs&, const Types& in) { return elementwise_rule(1, 1, in, "^."); }

void grad(GradContext& g) {
  if (g.needs(0)) g.add(0, g.emit("mul_scalar", {g.d_out(0), g.in(1)})[0]);
  if (g.needs(1)) g.add(1, g.emit("dot", {g.in(0), g.d_out(0)})[0]);
}

std::vector<OpSample> samples() {
  std::vector<OpSample> all = elementwise_samples(1);
  for (OpSample& s : all) s.in.push_back({Dtype::f64, {}});
  return all;
}

}  // namespace

OpDef mul_scalar_op() {
  OpDef op;
  op.name = "mul_scalar";
  op.summary = "product with a scalar value";
  op.rule = rule;
  op.grad = grad;
  op.flops = per_element<1>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  return op;
}

}  // namespace plait
