// Matrix products of f32 and bf16, in any layout, with what follows a product in the same pass:
//
//   C = alpha op(A) op(B) + bias + addend       C [m, n], op(A) [m, k], op(B) [k, n], row-major
//
//   gemm(t, f, d, 1, {x, Dtype::f32, d}, {w, Dtype::f32, d, true}, y, Dtype::f32, f, {.bias = b},
//        scratch, threads);                                      y [t, f] = x [t, d] w [f, d]T + b
//
// Sums are f32 whatever the operands are; a bf16 result is rounded once, at the end. Every element
// of C is summed in an order that depends on k alone: its bits are the same for any number of
// threads, and for any m and n around it. Instruction sets differ in their last bits. alpha = 0
// multiplies like any other number: NaN in A or B stays NaN. Where A and B are bf16 and alpha is 1,
// a processor's instructions for bf16 multiply them (micro_bf16.h), which take denormal operands
// and sums for zeros.
//
// Nothing is allocated. C must not overlap A or B; it may be the addend itself, element for
// element.
#pragma once

#include <cstdint>

#include "plait/base/dtype.h"
#include "plait/ops/gemm_scratch.h"

namespace plait {

// op(X) [rows, columns] lies as X [rows, columns], or as X [columns, rows] when it is transposed;
// ld elements from one row of X to the next, at least a row's length.
struct Matrix {
  const void* data;
  Dtype dtype;  // f32 or bf16
  int64_t ld;
  bool transposed = false;
};

struct Epilogue {
  const float* bias = nullptr;   // [n], added to every row
  const void* addend = nullptr;  // [m, n]
  Dtype addend_dtype = Dtype::f32;
  int64_t addend_ld = 0;
};

// Sizes may be 0; with k = 0 the product is zeros. `scratch`: gemm_scratch_bytes(m, n, k, threads,
// c_dtype).
void gemm(int64_t m, int64_t n, int64_t k, float alpha, const Matrix& a, const Matrix& b, void* c,
          Dtype c_dtype, int64_t ldc, const Epilogue& epilogue, void* scratch, int threads);

// Multiplies and adds vectors in registers and does nothing else, for benchmarks: the limit of the
// instruction set in use. Returns the FLOP that it took.
double multiply_adds(int64_t rounds);

}  // namespace plait
