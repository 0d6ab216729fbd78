// gelu_erf: y = x P(x) with P(x) = (1 + erf(x / sqrt 2)) / 2, elementwise: the exact Gaussian error
// linear unit, "gelu" at Hugging Face (Hendrycks and Gimpel, 2016)
#include "plait/ops/ops.h"

namespace plait {
namespace {

constexpr double kRootHalf = 0.70710678118654752440;  // 1 / sqrt 2
constexpr double kDensity = 0.39894228040143267794;   // 1 / sqrt(2 pi)

template <class T>
T probability(T x) {
  using std::erf;
  return T(0.5) * (T(1) + erf(x * T(kRootHalf)));
}

template <class T>
void reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x) { return x * probability(x); });
}

template <class T>
void grad_reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x, T dy) {
    using std::exp;
    return dy * (probability(x) + x * (T(kDensity) * exp(T(-0.5) * x * x)));
  });
}

void grad(GradContext& g) { g.add(0, g.emit("gelu_erf_grad", {g.in(0), g.d_out(0)})[0]); }

}  // namespace

OpDef gelu_erf_op() {
  OpDef op;
  op.name = "gelu_erf";
  op.summary = "Gaussian error linear unit, exact";
  op.rule = elementwise<1>;
  op.grad = grad;
  op.flops = per_element<5>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(1); };
  return op;
}

OpDef gelu_erf_grad_op() {
  OpDef op;
  op.name = "gelu_erf_grad";
  op.summary = "gradient of gelu_erf from its input and dy";
  op.rule = elementwise<2>;
  op.no_grad = kIsGradient;
  op.flops = per_element<11>;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = [] { return elementwise_samples(2); };
  return op;
}

}  // namespace plait
