// Gated activations, y = f(g) u, and their gradient, which also makes y again where the backward
// pass wants it (recompute): one pass over g, u and dy.
#include "plait/ops/fused.h"

namespace plait {
namespace {

std::vector<OpSample> samples(size_t operands) {
  const TensorType t{Dtype::f64, {{"T", 7}, {"F", 6, 2}}};
  return one_sample(Types(operands, t));
}

}  // namespace

OpDef gated_silu_op() {
  OpDef op = fused_op("gated_silu", "silu of one operand times the other",
                      "g, u -> y: a = silu(g); y = mul(a, u)");
  op.samples = [] { return samples(2); };
  return op;
}

OpDef gated_silu_grad_op() {
  OpDef op = fused_op("gated_silu_grad", "gradients of gated_silu, and its result again",
                      "g, u, dy -> y, dg, du: a = silu(g); y = mul(a, u); da = mul(dy, u); "
                      "du = mul(dy, a); dg = silu_grad(g, da)");
  op.samples = [] { return samples(3); };
  return op;
}

OpDef gated_gelu_op() {
  OpDef op = fused_op("gated_gelu", "gelu of one operand times the other",
                      "g, u -> y: a = gelu(g); y = mul(a, u)");
  op.samples = [] { return samples(2); };
  return op;
}

OpDef gated_gelu_grad_op() {
  OpDef op = fused_op("gated_gelu_grad", "gradients of gated_gelu, and its result again",
                      "g, u, dy -> y, dg, du: a = gelu(g); y = mul(a, u); da = mul(dy, u); "
                      "du = mul(dy, a); dg = gelu_grad(g, da)");
  op.samples = [] { return samples(3); };
  return op;
}

}  // namespace plait
