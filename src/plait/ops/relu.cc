// relu: y = max(x, 0), elementwise; its gradient at 0 is 0, as in torch
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x) { return x > T(0) ? x : T(0); });
}

template <class T>
void grad_reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x, T dy) { return x > T(0) ? dy : T(0); });
}

void grad(GradContext& g) { g.add(0, g.emit("relu_grad", {g.in(0), g.d_out(0)})[0]); }

}  // namespace

OpDef relu_op() {
  OpDef op;
  op.name = "relu";
  op.summary = "positive part";
  op.rule = elementwise<1>;
  op.grad = grad;
  op.flops = no_flops;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(1); };
  return op;
}

OpDef relu_grad_op() {
  OpDef op;
  op.name = "relu_grad";
  op.summary = "gradient of relu from its input and dy";
  op.rule = elementwise<2>;
  op.no_grad = kIsGradient;
  op.flops = no_flops;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = [] { return elementwise_samples(2); };
  return op;
}

}  // namespace plait
