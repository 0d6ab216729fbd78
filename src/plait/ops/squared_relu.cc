// squared_relu: y = max(x, 0)^2, elementwise (So et al., "Primer", 2021).
// docs/recipes/add_an_op.md walks through this file.
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x) {
    const T positive = x > T(0) ? x : T(0);
    return positive * positive;
  });
}

template <class T>
void grad_reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x, T dy) { return T(2) * (x > T(0) ? x : T(0)) * dy; });
}

void grad(GradContext& g) { g.add(0, g.emit("squared_relu_grad", {g.in(0), g.d_out(0)})[0]); }

}  // namespace

OpDef squared_relu_op() {
  OpDef op;
  op.name = "squared_relu";
  op.summary = "square of the positive part";
  op.rule = elementwise<1>;
  op.grad = grad;
  op.flops = per_element<1>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(1); };
  return op;
}

OpDef squared_relu_grad_op() {
  OpDef op;
  op.name = "squared_relu_grad";
  op.summary = "gradient of squared_relu from its input and dy";
  op.rule = elementwise<2>;
  op.no_grad = kIsGradient;
  op.flops = per_element<2>;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = [] { return elementwise_samples(2); };
  return op;
}

}  // namespace plait
