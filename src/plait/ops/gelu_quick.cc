// gelu_quick: y = x sigmoid(1.702 x), elementwise: the sigmoid approximation, "quick_gelu" at
// Hugging Face (Hendrycks and Gimpel, 2016)
#include "plait/ops/ops.h"

namespace plait {
namespace {

constexpr double kSlope = 1.702;

// exp of a negative number only, so that it never overflows.
template <class T>
T gate(T x) {
  using std::exp;
  const T slope = T(kSlope) * x;
  const T e = exp(slope < T(0) ? slope : -slope);
  return (slope < T(0) ? e : T(1)) / (T(1) + e);
}

template <class T>
void reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x) { return x * gate(x); });
}

template <class T>
void grad_reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x, T dy) {
    const T s = gate(x);
    return dy * (s * (T(1) + T(kSlope) * x * (T(1) - s)));
  });
}

void grad(GradContext& g) { g.add(0, g.emit("gelu_quick_grad", {g.in(0), g.d_out(0)})[0]); }

}  // namespace

OpDef gelu_quick_op() {
  OpDef op;
  op.name = "gelu_quick";
  op.summary = "Gaussian error linear unit, sigmoid approximation";
  op.rule = elementwise<1>;
  op.grad = grad;
  op.flops = per_element<5>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(1); };
  return op;
}

OpDef gelu_quick_grad_op() {
  OpDef op;
  op.name = "gelu_quick_grad";
  op.summary = "gradient of gelu_quick from its input and dy";
  op.rule = elementwise<2>;
  op.no_grad = kIsGradient;
  op.flops = per_element<10>;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = [] { return elementwise_samples(2); };
  return op;
}

}  // namespace plait
