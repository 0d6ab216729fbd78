// to_bf16: y = x rounded to bf16, to nearest and ties to even: the copy of a parameter that blocks
// compute with, where the model's element type is bf16.
#include "plait/ops/ops.h"

namespace plait {
namespace {

// The rounding is that of storing the result; run_reference (ir/fused.h) does it.
template <class T>
void reference(const KernelArgs& args) {
  map_elements<T>(args, [](T x) { return x; });
}

Types infer(const Attrs&, const Types& in) { return {{Dtype::bf16, in[0].dims}}; }

std::string rule(const Attrs&, const Types& in) {
  const std::string same = elementwise_rule(1, 1, in);
  return "^" + same;
}

}  // namespace

OpDef to_bf16_op() {
  OpDef op;
  op.name = "to_bf16";
  op.summary = "rounds to bf16";
  op.rule = rule;
  op.infer = infer;
  op.no_grad = "gradients are of the copy, and added up in f32";
  op.flops = no_flops;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return elementwise_samples(1); };
  return op;
}

}  // namespace plait
