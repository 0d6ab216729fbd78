// silu: y = x sigmoid(x), elementwise (Elfwing et al., 2017)
#include "plait/ops/ops.h"

namespace plait {
namespace {

// exp of a negative number only, so that it never overflows.
template <class T>
T sigmoid(T x) {
  using std::exp;
  const T e = exp(x < T(0) ? x : -x);
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

template <class T>
void reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x) { return x * sigmoid(x); });
}

template <class T>
void grad_reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x, T dy) {
    const T s = sigmoid(x);
    return dy * (s * (T(1) + x * (T(1) - s)));
  });
}

void grad(GradContext& g) { g.add(0, g.emit("silu_grad", {g.in(0), g.d_out(0)})[0]); }

}  // namespace

OpDef silu_op() {
  OpDef op;
  op.name = "silu";
  op.summary = "x sigmoid(x)";
  op.rule = elementwise<1>;
  op.grad = grad;
  op.flops = per_element<4>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(1); };
  return op;
}

OpDef silu_grad_op() {
  OpDef op;
  op.name = "silu_grad";
  op.summary = "gradient of silu from its input and dy";
  op.rule = elementwise<2>;
  op.no_grad = kIsGradient;
  op.flops = per_element<8>;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = [] { return elementwise_samples(2); };
  return op;
}

}  // namespace plait
