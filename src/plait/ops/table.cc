// The table of all ops. To add one, write its file and add its line here; nothing else.
#include "plait/ops/ops.h"

// X(name) stands for the record that name_op() makes; one line per file.
// clang-format off
#define PLAIT_OPS(X) \
  X(matmul) \
  X(embedding) X(embedding_grad) \
  X(rms_norm) X(rms_norm_grad_x) X(rms_norm_grad_w) \
  X(layer_norm) X(layer_norm_grad_x) X(layer_norm_grad_w) \
  X(sum_rows) \
  X(add_bias) \
  X(add) \
  X(sub) \
  X(mul) \
  X(scale) \
  X(accumulate) \
  X(silu) X(silu_grad) \
  X(gelu) X(gelu_grad) \
  X(gelu_erf) X(gelu_erf_grad) \
  X(gelu_quick) X(gelu_quick_grad) \
  X(relu) X(relu_grad) \
  X(squared_relu) X(squared_relu_grad) \
  X(soft_cap) X(soft_cap_grad) \
  X(rope) \
  X(attention) X(attention_grad) \
  X(row_lse) X(lse_grad) \
  X(pick) X(pick_grad) \
  X(dot) \
  X(preference_loss) X(preference_loss_grad) \
  X(mul_scalar) \
  X(to_bf16) \
  X(sum_squares) \
  X(clip_scale) \
  X(adamw) \
  X(sgd) X(sgd_momentum) \
  X(sum_along) \
  X(adafactor_moment) X(adafactor_direction) X(adafactor_whole) X(adafactor_step) \
  X(orthogonalize) \
  X(muon_momentum) X(muon_step) \
  /* fused ops: in the order in which fusion tries them */ \
  X(linear_nll_grad) X(linear_nll_grad_x) X(linear_nll) \
  X(gated_silu_grad) X(gated_silu) X(gated_gelu_grad) X(gated_gelu) \
  X(linear_bias_add) X(linear_bias) X(linear_add) \
  X(rms_norm_grad_x_add) X(layer_norm_grad_x_add) \
  /* ... and the ones that add a gradient to its sum, chosen where programs are emitted */ \
  X(linear_nll_grad_accumulate) X(matmul_accumulate) X(embedding_grad_accumulate)
// clang-format on

namespace plait {

#define PLAIT_DECLARE(name) OpDef name##_op();
PLAIT_OPS(PLAIT_DECLARE)
#undef PLAIT_DECLARE

std::span<const OpDef> all_ops() {
#define PLAIT_RECORD(name) name##_op(),
  static const std::vector<OpDef> table = {PLAIT_OPS(PLAIT_RECORD)};
#undef PLAIT_RECORD
  return table;
}

}  // namespace plait
