// Internal to kernels/cpu: what kernel files call of one another.
#pragma once

#include "plait/kernels/cpu/cpu.h"

namespace plait {

// c = alpha op(a) op(b) + beta c, row-major, leading dimensions in elements; gemm.
void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

}  // namespace plait
