// dot: y = sum of a b over all elements, operands of one shape -> scalar
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  const T* a = args.in[0].as<T>();
  const T* b = args.in[1].as<T>();
  T sum = T(0);
  for (int64_t i = 0, n = args.in[0].elements(); i < n; ++i) sum += a[i] * b[i];
  *args.out[0].as<T>() = sum;
}

std::string rule(const Attrs&, const Types& in) { return elementwise_rule(2, 0, in) + "."; }

void grad(GradContext& g) {
  if (g.needs(0)) g.add(0, g.emit("mul_scalar", {g.in(1), g.d_out(0)})[0]);
  if (g.needs(1)) g.add(1, g.emit("mul_scalar", {g.in(0), g.d_out(0)})[0]);
}

}  // namespace

OpDef dot_op() {
  OpDef op;
  op.name = "dot";
  op.summary = "sum of products over all elements";
  op.rule = rule;
  op.grad = grad;
  op.flops = per_element<2>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(2); };
  return op;
}

}  // namespace plait
