// Internal to kernels/cpu: the kernels that the table in table.cc names.
#pragma once

#include "plait/kernels/cpu/cpu.h"

namespace plait {

// c = alpha op(a) op(b) + beta c, row-major, leading dimensions in elements; oneDNN.
void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

void fast_matmul(const KernelArgs& args);
void fast_attention(const KernelArgs& args);
void fast_attention_bf16(const KernelArgs& args);
void fast_attention_grad(const KernelArgs& args);
void fast_attention_grad_bf16(const KernelArgs& args);
void fast_orthogonalize(const KernelArgs& args);

}  // namespace plait
