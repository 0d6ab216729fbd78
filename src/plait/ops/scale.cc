// scale: y = x by, where the factor `by` is an attribute
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  const T by = T(attr(*args.attrs, "by"));
  const T* x = args.in[0].as<T>();
  T* y = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i) y[i] = x[i] * by;
}

void grad(GradContext& g) { g.add(0, g.emit("scale", {g.d_out(0)}, g.attrs())[0]); }

}  // namespace

OpDef scale_op() {
  OpDef op;
  op.name = "scale";
  op.attributes = {"by"};
  op.summary = "product with a fixed number";
  op.rule = elementwise<1>;
  op.additive = true;
  op.grad = grad;
  op.flops = per_element<1>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(1, {{"by", -0.75}}); };
  return op;
}

}  // namespace plait
