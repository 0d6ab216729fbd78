// mul: y = a b, operands of one shape
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  map_elements<T>(args, [](T a, T b) { return a * b; });
}

void grad(GradContext& g) {
  if (g.needs(0)) g.add(0, g.emit("mul", {g.d_out(0), g.in(1)})[0]);
  if (g.needs(1)) g.add(1, g.emit("mul", {g.d_out(0), g.in(0)})[0]);
}

}  // namespace

OpDef mul_op() {
  OpDef op;
  op.name = "mul";
  op.summary = "elementwise product";
  op.rule = elementwise<2>;
  op.grad = grad;
  op.flops = per_element<1>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(2); };
  return op;
}

}  // namespace plait
