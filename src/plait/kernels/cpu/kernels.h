// Internal to kernels/cpu: the kernels that the table in table.cc names.
#pragma once

#include "plait/kernels/cpu/cpu.h"

namespace plait {

// c = alpha op(a) op(b) + beta c, row-major, leading dimensions in elements; oneDNN.
void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

void fast_matmul(const KernelArgs& args);
void fast_attention(const KernelArgs& args);
void fast_attention_grad(const KernelArgs& args);
void fast_orthogonalize(const KernelArgs& args);

// Vector kernels. They go by the types of the views they are given, f32 and bf16, so that one
// function serves both columns of the table.
void fast_add(const KernelArgs& args);
void fast_sub(const KernelArgs& args);
void fast_mul(const KernelArgs& args);
void fast_scale(const KernelArgs& args);
void fast_mul_scalar(const KernelArgs& args);
void fast_accumulate(const KernelArgs& args);
void fast_add_bias(const KernelArgs& args);
void fast_relu(const KernelArgs& args);
void fast_relu_grad(const KernelArgs& args);
void fast_squared_relu(const KernelArgs& args);
void fast_squared_relu_grad(const KernelArgs& args);
void fast_silu(const KernelArgs& args);
void fast_silu_grad(const KernelArgs& args);
void fast_gelu(const KernelArgs& args);
void fast_gelu_grad(const KernelArgs& args);
void fast_gelu_erf(const KernelArgs& args);
void fast_gelu_erf_grad(const KernelArgs& args);
void fast_gelu_quick(const KernelArgs& args);
void fast_gelu_quick_grad(const KernelArgs& args);
void fast_soft_cap(const KernelArgs& args);
void fast_soft_cap_grad(const KernelArgs& args);
void fast_sum_rows(const KernelArgs& args);
void fast_rms_norm(const KernelArgs& args);
void fast_rms_norm_grad_x(const KernelArgs& args);
void fast_rms_norm_grad_w(const KernelArgs& args);
void fast_layer_norm(const KernelArgs& args);
void fast_layer_norm_grad_x(const KernelArgs& args);
void fast_layer_norm_grad_w(const KernelArgs& args);
void fast_rope(const KernelArgs& args);
void fast_row_lse(const KernelArgs& args);
void fast_lse_grad(const KernelArgs& args);
void fast_pick(const KernelArgs& args);
void fast_pick_grad(const KernelArgs& args);
void fast_embedding(const KernelArgs& args);
void fast_embedding_grad(const KernelArgs& args);
void fast_dot(const KernelArgs& args);
void fast_sum_squares(const KernelArgs& args);
void fast_sum_along(const KernelArgs& args);
void fast_adamw(const KernelArgs& args);
void fast_sgd(const KernelArgs& args);
void fast_sgd_momentum(const KernelArgs& args);
void fast_adafactor_moment(const KernelArgs& args);
void fast_adafactor_direction(const KernelArgs& args);
void fast_adafactor_whole(const KernelArgs& args);
void fast_adafactor_step(const KernelArgs& args);
void fast_muon_momentum(const KernelArgs& args);
void fast_muon_step(const KernelArgs& args);

}  // namespace plait
