// accumulate: acc += g, in place; sums the gradients of micro-batches
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  map_elements<T>(args, [](T acc, T g) { return acc + g; });
}

// What is added may be narrower than the sum.
std::string rule(const Attrs&, const Types& in) {
  const std::string same = elementwise_rule(2, 1, in);
  const std::string shape = same.substr(0, same.find(','));
  return "^" + shape + ", " + shape + " -> ^" + shape;
}

}  // namespace

OpDef accumulate_op() {
  OpDef op;
  op.name = "accumulate";
  op.summary = "adds into its first operand";
  op.rule = rule;
  op.additive = true;
  op.terms = {1, 1};
  op.in_place = {{0, 0}};
  op.no_grad = "it writes in place";
  op.flops = per_element<1>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(2); };
  return op;
}

}  // namespace plait
