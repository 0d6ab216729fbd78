// Scratch memory of a matrix product, for the workspace of ops whose fast kernels multiply: what
// kernels/cpu/gemm.h needs for C [m, n] by k summands. It lies here because ops/ states workspaces
// and kernels/ keeps to them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plait/base/dtype.h"

namespace plait {

// Sizes of blocks, at most: every thread holds, in f32, a block of A, one of B, and where C is bf16
// and k is split, the sums of one of C. Instructions for bf16 pack twice the depth into the same
// memory. The sizes are the same on every machine, so that programs are.
struct GemmBlocks {
  static constexpr int64_t kDepth = 384;   // summands that are packed at a time
  static constexpr int64_t kWidth = 1024;  // columns of B
  static constexpr int64_t kHeight = 96;   // rows of A, packed
  static constexpr int64_t kSums = 576;    // rows of C that are summed up in scratch
  // Sizes are rounded up to these: whole tiles of every instruction set. Depths are those of f32.
  static constexpr int64_t kRowGrains[] = {12, 32}, kColumnGrain = 32, kDepthGrain = 16;

  int64_t depth, width, height, sums;

  static constexpr int64_t up(int64_t size, int64_t grain) {
    return (size + grain - 1) / grain * grain;
  }
  static constexpr int64_t rows(int64_t m) {
    return std::max(up(m, kRowGrains[0]), up(m, kRowGrains[1]));
  }
  GemmBlocks(int64_t m, int64_t n, int64_t k, Dtype c)
      : depth(std::min(up(k, kDepthGrain), kDepth)),
        width(std::min(up(n, kColumnGrain), kWidth)),
        height(std::min(rows(m), kHeight)),
        sums(c != Dtype::f32 && k > kDepth ? std::min(rows(m), kSums) : 0) {}

  // Floats of one thread: the three blocks begin at multiples of 64 bytes.
  int64_t b_floats() const { return up(depth * width, 16); }
  int64_t a_floats() const { return up(depth * height, 16); }
  int64_t c_floats() const { return up(sums * width, 16); }
  int64_t bytes() const { return 4 * (a_floats() + b_floats() + c_floats()); }
};

// With C of type `c`; at most 1.8 MB a thread, 4.1 MB for bf16, and no less for larger sizes. 64
// bytes are there to align what is given.
inline int64_t gemm_scratch_bytes(int64_t m, int64_t n, int64_t k, int threads, Dtype c) {
  return std::max(threads, 1) * GemmBlocks(m, n, k, c).bytes() + 64;
}

}  // namespace plait
