// Which instruction sets the Highway kernels are compiled for: the compiler's baseline, AVX2 and
// AVX-512 on x86. Vectors of unknown size are left out, since kernels keep vectors in arrays.
// Included before hwy/highway.h, and before hwy/foreach_target.h, by every file of kernels.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
