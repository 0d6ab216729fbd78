// sum_squares: y = sum of x^2 over all elements, any shape -> scalar
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  const T* x = args.in[0].as<T>();
  T sum = T(0);
  for (int64_t i = 0, n = args.in[0].elements(); i < n; ++i) sum += x[i] * x[i];
  *args.out[0].as<T>() = sum;
}

std::string rule(const Attrs&, const Types& in) { return elementwise_rule(1, 0, in) + "."; }

}  // namespace

OpDef sum_squares_op() {
  OpDef op;
  op.name = "sum_squares";
  op.summary = "sum of squares over all elements";
  op.rule = rule;
  op.no_grad = kIsUpdate;
  op.flops = per_element<2>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(1); };
  return op;
}

}  // namespace plait
