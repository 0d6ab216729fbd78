// soft_cap: y = cap tanh(x / cap), elementwise: x, kept inside (-cap, cap) (Gemma 2's logits)
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  using std::tanh;
  const double cap = attr(*args.attrs, "cap");
  const T* x = args.in[0].as<T>();
  T* y = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i)
    y[i] = T(cap) * tanh(x[i] * T(1 / cap));
}

// dx = dy (1 - (y / cap)^2), from the result
template <class T>
void grad_reference(const KernelArgs& args) {
  const double cap = attr(*args.attrs, "cap");
  const T *y = args.in[0].as<T>(), *dy = args.in[1].as<T>();
  T* dx = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i) {
    const T t = y[i] * T(1 / cap);
    dx[i] = dy[i] * (T(1) - t * t);
  }
}

void check(const Attrs& attrs, const Types&) {
  if (const double cap = attr(attrs, "cap"); !(cap > 0))
    fail("attribute 'cap': found {}, expected a number above 0", cap);
}

void grad(GradContext& g) {
  g.add(0, g.emit("soft_cap_grad", {g.out(0), g.d_out(0)}, g.attrs())[0]);
}

}  // namespace

OpDef soft_cap_op() {
  OpDef op;
  op.name = "soft_cap";
  op.attributes = {"cap"};
  op.summary = "cap tanh(x / cap)";
  op.rule = elementwise<1>;
  op.check = check;
  op.grad = grad;
  op.flops = per_element<3>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(1, {{"cap", 0.7}}); };
  return op;
}

OpDef soft_cap_grad_op() {
  OpDef op;
  op.name = "soft_cap_grad";
  op.attributes = {"cap"};
  op.summary = "gradient of soft_cap from its result and dy";
  op.rule = elementwise<2>;
  op.check = check;
  op.no_grad = kIsGradient;
  op.flops = per_element<4>;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = [] { return elementwise_samples(2, {{"cap", 0.7}}); };
  return op;
}

}  // namespace plait
