// The fast kernels. To add one, write fast_NAME in a file of its family and add its line here.
#include "plait/kernels/cpu/cpu.h"

// BOTH(name): fast_name serves f32 and bf16, by the types of the views it is given.
// F32(name): f32 alone; in bf16 the op runs its reference.
// clang-format off
#define PLAIT_FAST_KERNELS(BOTH, F32) \
  BOTH(matmul) \
  BOTH(linear_bias) BOTH(linear_add) BOTH(linear_bias_add) BOTH(matmul_accumulate) \
  BOTH(linear_nll) BOTH(linear_nll_grad) BOTH(linear_nll_grad_x) \
  BOTH(linear_nll_grad_accumulate) \
  BOTH(attention) BOTH(attention_grad) \
  F32(orthogonalize) \
  BOTH(add) BOTH(sub) BOTH(mul) BOTH(scale) BOTH(mul_scalar) \
  BOTH(accumulate) \
  BOTH(add_bias) BOTH(sum_rows) \
  BOTH(to_bf16) \
  BOTH(relu) BOTH(relu_grad) \
  BOTH(squared_relu) BOTH(squared_relu_grad) \
  BOTH(silu) BOTH(silu_grad) \
  BOTH(gelu) BOTH(gelu_grad) \
  BOTH(gelu_erf) BOTH(gelu_erf_grad) \
  BOTH(gelu_quick) BOTH(gelu_quick_grad) \
  BOTH(gated_silu) BOTH(gated_silu_grad) \
  BOTH(gated_gelu) BOTH(gated_gelu_grad) \
  BOTH(soft_cap) BOTH(soft_cap_grad) \
  BOTH(rms_norm) BOTH(rms_norm_grad_x) BOTH(rms_norm_grad_w) \
  BOTH(rms_norm_grad_x_add) \
  BOTH(layer_norm) BOTH(layer_norm_grad_x) BOTH(layer_norm_grad_w) \
  BOTH(layer_norm_grad_x_add) \
  BOTH(rope) \
  BOTH(row_lse) BOTH(lse_grad) \
  BOTH(pick) BOTH(pick_grad) \
  BOTH(embedding) BOTH(embedding_grad) BOTH(embedding_grad_accumulate) \
  BOTH(dot) BOTH(sum_squares) BOTH(sum_along) \
  BOTH(adamw) BOTH(sgd) BOTH(sgd_momentum) \
  BOTH(adafactor_moment) BOTH(adafactor_direction) BOTH(adafactor_whole) BOTH(adafactor_step) \
  BOTH(muon_momentum) BOTH(muon_step)
// clang-format on

namespace plait {

#define PLAIT_DECLARE(name) void fast_##name(const KernelArgs& args);
PLAIT_FAST_KERNELS(PLAIT_DECLARE, PLAIT_DECLARE)
#undef PLAIT_DECLARE

std::span<const FastKernel> fast_kernels() {
#define PLAIT_BOTH(name) {#name, fast_##name, fast_##name},
#define PLAIT_F32(name) {#name, fast_##name, nullptr},
  static constexpr FastKernel kernels[] = {PLAIT_FAST_KERNELS(PLAIT_BOTH, PLAIT_F32)};
#undef PLAIT_BOTH
#undef PLAIT_F32
  return kernels;
}

}  // namespace plait
