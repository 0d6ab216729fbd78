// 16 x 16 transposed in registers, for the packing of micro-inl.h and micro_bf16.cc. Instructions
// of AVX-512 that Highway has no names for.
#pragma once

#if defined(__x86_64__) && defined(__linux__)
#ifndef __clang__  // GCC 12 takes its own header's undefined vectors for a mistake
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#define PLAIT_AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")))

namespace plait {

// Rows of 16 elements of 32 bits each become columns.
PLAIT_AVX512 inline __attribute__((always_inline)) void transpose16(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // r[4 g + c] holds column 4 q + c of rows 4 g ... 4 g + 3 in its quarter q.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x44);
    t[4 + c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xee);
    t[8 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x44);
    t[12 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xee);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    r[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88);
    r[4 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0xdd);
    r[8 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88);
    r[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xdd);
  }
}

}  // namespace plait
#endif
