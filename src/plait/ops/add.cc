// add: y = a + b, operands of one shape
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  map_elements<T>(args, [](T a, T b) { return a + b; });
}

void grad(GradContext& g) {
  g.add(0, g.d_out(0));
  g.add(1, g.d_out(0));
}

}  // namespace

OpDef add_op() {
  OpDef op;
  op.name = "add";
  op.summary = "elementwise sum";
  op.rule = elementwise<2>;
  op.additive = true;
  op.terms = {1, 1};
  op.grad = grad;
  op.flops = per_element<1>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(2); };
  return op;
}

}  // namespace plait
