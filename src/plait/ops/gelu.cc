// gelu: y = x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), elementwise: the tanh
// approximation, "gelu_new" at Hugging Face (Hendrycks and Gimpel, 2016)
#include "plait/ops/ops.h"

namespace plait {
namespace {

constexpr double kRoot = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;

template <class T>
T inner_tanh(T x) {
  using std::tanh;
  return tanh(T(kRoot) * (x + T(kCubic) * x * x * x));
}

template <class T>
void reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x) { return T(0.5) * x * (T(1) + inner_tanh(x)); });
}

// 1 - tanh^2 is 0 for large |x| before x^2 could overflow.
template <class T>
void grad_reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x, T dy) {
    const T th = inner_tanh(x);
    const T du = T(kRoot) * (T(1) + T(3 * kCubic) * x * x);
    return dy * (T(0.5) * (T(1) + th) + T(0.5) * x * (T(1) - th * th) * du);
  });
}

void grad(GradContext& g) { g.add(0, g.emit("gelu_grad", {g.in(0), g.d_out(0)})[0]); }

}  // namespace

OpDef gelu_op() {
  OpDef op;
  op.name = "gelu";
  op.summary = "Gaussian error linear unit, tanh approximation";
  op.rule = elementwise<1>;
  op.grad = grad;
  op.flops = per_element<9>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(1); };
  return op;
}

OpDef gelu_grad_op() {
  OpDef op;
  op.name = "gelu_grad";
  op.summary = "gradient of gelu from its input and dy";
  op.rule = elementwise<2>;
  op.no_grad = kIsGradient;
  op.flops = per_element<19>;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = [] { return elementwise_samples(2); };
  return op;
}

}  // namespace plait
