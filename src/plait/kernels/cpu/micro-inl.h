// The register-blocked product that gemm, attention and the linear loss are made of:
//
//   c [rows, kColumns] = (c +) sum over l < k of a(i, l) b[l, j]      all f32, c with stride ldc
//
// b is a panel: kColumns = 2 vectors wide, rows l one after the other, aligned to 64 bytes, made by
// pack_b or pack_b_transposed; columns beyond the matrix are zeros there. a is read in place or
// packed, as Strip names it:
//
//   Strip::rows(p, ld)        a(i, l) = p[i * ld + l]   rows of a matrix as it lies
//   Strip::columns(p, ld)     a(i, l) = p[l * ld + i]   a transposed matrix as it lies
//   Strip::packed(p)          a(i, l) = p[l * kRows + i]    made by pack_a or pack_a_transposed
//
// S = Q KT:   pack_b_transposed(K), then micro(rows, head_size, Strip::rows(q, ldq), panel, s, ...)
// O += P V:   pack_b(V), then micro(rows, keys, Strip::rows(p, ldp), panel, o, ldo, true)
// dV += PT dO: pack_b(dO), then micro(rows, queries, Strip::columns(p, ldp), panel, dv, ldv, true)
//
// Every element is one chain of multiply-adds in the order of l, from zero, then added to c: its
// bits do not depend on rows, on the kind of strip, or on where in a tile it lies.
//
// Included once for each target, inside no namespace, after targets.h and hwy/highway.h.
#if defined(PLAIT_KERNELS_CPU_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLAIT_KERNELS_CPU_MICRO_INL_H_
#undef PLAIT_KERNELS_CPU_MICRO_INL_H_
#else
#define PLAIT_KERNELS_CPU_MICRO_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "plait/kernels/cpu/targets.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "plait/kernels/cpu/transpose16.h"

HWY_BEFORE_NAMESPACE();
namespace plait {
namespace HWY_NAMESPACE {
namespace micro_internal {

namespace hn = hwy::HWY_NAMESPACE;
using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

constexpr int64_t kLanes = hn::MaxLanes(F());

}  // namespace micro_internal

// Rows and columns of a tile: as many accumulators as leave registers for a row of the panel and
// one element of a.
constexpr int64_t kColumns = 2 * micro_internal::kLanes;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
constexpr int64_t kRows = 12;
#else
constexpr int64_t kRows = 6;
#endif

// How a strip of a lies.
enum class Lie : uint8_t { rows, columns, packed };

struct Strip {
  const float* data;
  int64_t ld;
  Lie lie;
  static Strip rows(const float* p, int64_t ld) { return {p, ld, Lie::rows}; }
  static Strip columns(const float* p, int64_t ld) { return {p, ld, Lie::columns}; }
  static Strip packed(const float* p) { return {p, kRows, Lie::packed}; }
};

namespace micro_internal {

// The accumulators are single variables: compilers keep arrays of vectors in memory.
#define PLAIT_ROWS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define PLAIT_DECLARE(i) [[maybe_unused]] V low##i = hn::Zero(f), high##i = hn::Zero(f);
#define PLAIT_PREFETCH(i)                                                                   \
  if constexpr (i < kCount) {                                                               \
    hwy::Prefetch(c + i * ldc);                                                             \
    if constexpr (kColumns * sizeof(float) > 64) hwy::Prefetch(c + i * ldc + kColumns / 2); \
  }
#define PLAIT_MULTIPLY(i)                                            \
  if constexpr (i < kCount) {                                        \
    const V one = hn::Set(f, kLie == Lie::rows ? a[i * lda] : a[i]); \
    low##i = hn::MulAdd(one, b_low, low##i);                         \
    high##i = hn::MulAdd(one, b_high, high##i);                      \
  }
#define PLAIT_STEP                                                    \
  {                                                                   \
    const V b_low = hn::Load(f, b), b_high = hn::Load(f, b + kLanes); \
    PLAIT_ROWS(PLAIT_MULTIPLY)                                        \
    a += kLie == Lie::rows ? 1 : kLie == Lie::columns ? lda : kRows;  \
    b += kColumns;                                                    \
  }
#define PLAIT_STORE(i)                                        \
  if constexpr (i < kCount) {                                 \
    float* row = c + i * ldc;                                 \
    if (add) {                                                \
      low##i = hn::Add(hn::LoadU(f, row), low##i);            \
      high##i = hn::Add(hn::LoadU(f, row + kLanes), high##i); \
    }                                                         \
    hn::StoreU(low##i, f, row);                               \
    hn::StoreU(high##i, f, row + kLanes);                     \
  }

template <int kCount, Lie kLie>
HWY_NOINLINE void tile(int64_t k, const float* HWY_RESTRICT a, int64_t lda,
                       const float* HWY_RESTRICT b, float* HWY_RESTRICT c, int64_t ldc, bool add) {
  static_assert(kCount <= 12, "PLAIT_ROWS has 12");
  const F f;
  PLAIT_ROWS(PLAIT_DECLARE)
  PLAIT_ROWS(PLAIT_PREFETCH)
  int64_t l = 0;
  for (; l + 4 <= k; l += 4) {
    PLAIT_STEP
    PLAIT_STEP
    PLAIT_STEP
    PLAIT_STEP
  }
  for (; l < k; ++l) PLAIT_STEP
  PLAIT_ROWS(PLAIT_STORE)
}

#undef PLAIT_ROWS
#undef PLAIT_DECLARE
#undef PLAIT_PREFETCH
#undef PLAIT_MULTIPLY
#undef PLAIT_STEP
#undef PLAIT_STORE

template <int kCount>
HWY_INLINE void tile_of(int64_t rows, int64_t k, const Strip& a, const float* b, float* c,
                        int64_t ldc, bool add) {
  if constexpr (kCount > 0) {
    if (rows != kCount) return tile_of<kCount - 1>(rows, k, a, b, c, ldc, add);
    switch (a.lie) {
      case Lie::rows:
        return tile<kCount, Lie::rows>(k, a.data, a.ld, b, c, ldc, add);
      case Lie::columns:
        return tile<kCount, Lie::columns>(k, a.data, a.ld, b, c, ldc, add);
      case Lie::packed:
        return tile<kCount, Lie::packed>(k, a.data, a.ld, b, c, ldc, add);
    }
  }
}

}  // namespace micro_internal

// 0 <= rows <= kRows; all kColumns columns of c are written.
HWY_INLINE void micro(int64_t rows, int64_t k, const Strip& a, const float* b, float* c,
                      int64_t ldc, bool add) {
  micro_internal::tile_of<kRows>(rows, k, a, b, c, ldc, add);
}

// The same for a tile at the right border, of which only `columns` <= kColumns are written.
HWY_INLINE void micro_border(int64_t rows, int64_t columns, int64_t k, const Strip& a,
                             const float* b, float* c, int64_t ldc, bool add) {
  if (columns == kColumns) return micro(rows, k, a, b, c, ldc, add);
  alignas(64) float whole[kRows * kColumns];
  micro(rows, k, a, b, whole, kColumns, false);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      c[i * ldc + j] = add ? c[i * ldc + j] + whole[i * kColumns + j] : whole[i * kColumns + j];
}

namespace micro_internal {

// Floats from f32 or from the bits of bf16.
HWY_INLINE float load1(const float* p) { return *p; }
HWY_INLINE float load1(const uint16_t* p) {
  const uint32_t bits = static_cast<uint32_t>(*p) << 16;
  float value;
  hwy::CopySameSize(&bits, &value);
  return value;
}
template <class D>
HWY_INLINE hn::Vec<D> load(D f, const float* p) {
  return hn::LoadU(f, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D f, const uint16_t* p) {
  const hn::Rebind<uint16_t, D> half;
  const hn::RebindToUnsigned<D> whole;
  return hn::BitCast(f, hn::ShiftLeft<16>(hn::PromoteTo(whole, hn::LoadU(half, p))));
}

#if HWY_TARGET == HWY_SCALAR
// to[l * to_ld + i] = scale from[i * ld + l] for i < 4 and l < 4.
template <class T>
HWY_INLINE void transpose4(const T* from, int64_t ld, float scale, float* to, int64_t to_ld) {
  for (int l = 0; l < 4; ++l)
    for (int i = 0; i < 4; ++i) to[l * to_ld + i] = scale * load1(from + i * ld + l);
}
template <class T>
HWY_INLINE void transpose2(const T* from, int64_t ld, float scale, float* to, int64_t to_ld) {
  for (int l = 0; l < 4; ++l)
    for (int i = 0; i < 2; ++i) to[l * to_ld + i] = scale * load1(from + i * ld + l);
}
#else
using F4 = hn::CappedTag<float, 4>;
// to[l * to_ld + i] = scale from[i * ld + l] for i < 4 and l < 4.
template <class T>
HWY_INLINE void transpose4(const T* from, int64_t ld, float scale, float* to, int64_t to_ld) {
  const F4 f;
  const hn::RepartitionToWide<F4> pairs;
  const auto by = hn::Set(f, scale);
  const auto r0 = hn::Mul(by, load(f, from)), r1 = hn::Mul(by, load(f, from + ld));
  const auto r2 = hn::Mul(by, load(f, from + 2 * ld)), r3 = hn::Mul(by, load(f, from + 3 * ld));
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(f, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(f, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(f, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(f, r2, r3));
  hn::StoreU(hn::BitCast(f, hn::InterleaveLower(pairs, low01, low23)), f, to);
  hn::StoreU(hn::BitCast(f, hn::InterleaveUpper(pairs, low01, low23)), f, to + to_ld);
  hn::StoreU(hn::BitCast(f, hn::InterleaveLower(pairs, high01, high23)), f, to + 2 * to_ld);
  hn::StoreU(hn::BitCast(f, hn::InterleaveUpper(pairs, high01, high23)), f, to + 3 * to_ld);
}

// The same for i < 2.
template <class T>
HWY_INLINE void transpose2(const T* from, int64_t ld, float scale, float* to, int64_t to_ld) {
  const F4 f;
  const hn::Half<F4> two;
  const auto by = hn::Set(f, scale);
  const auto r0 = hn::Mul(by, load(f, from)), r1 = hn::Mul(by, load(f, from + ld));
  const auto low = hn::InterleaveLower(f, r0, r1), high = hn::InterleaveUpper(f, r0, r1);
  hn::StoreU(hn::LowerHalf(two, low), two, to);
  hn::StoreU(hn::UpperHalf(two, low), two, to + to_ld);
  hn::StoreU(hn::LowerHalf(two, high), two, to + 2 * to_ld);
  hn::StoreU(hn::UpperHalf(two, high), two, to + 3 * to_ld);
}
#endif

#if HWY_TARGET == HWY_AVX3
// The same for i < kCount and l < 16. Rows of `to` are written as whole vectors, the last one
// apart: what is too much is written over by the next.
template <int kCount, class T>
HWY_INLINE void transpose_square(const T* from, int64_t ld, float scale, float* to, int64_t to_ld) {
  const V by = hn::Set(F(), scale);
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    r[i] = i < kCount ? _mm512_castps_si512(hn::Mul(by, load(F(), from + i * ld)).raw)
                      : _mm512_setzero_si512();
  transpose16(r);
#pragma GCC unroll 16
  for (int l = 0; l < 15; ++l) _mm512_storeu_si512(to + l * to_ld, r[l]);
  _mm512_mask_storeu_epi32(to + 15 * to_ld, static_cast<__mmask16>((1 << kCount) - 1), r[15]);
}
#endif

// Rounded to nearest, ties to even. A NaN stays one, quiet; infinities stay.
HWY_INLINE void store_bf16(V value, uint16_t* to) {
  const hn::RebindToUnsigned<F> whole;
  const hn::RebindToSigned<F> integers;
  const hn::Rebind<uint16_t, F> half;
  const auto bits = hn::BitCast(whole, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(whole, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(whole, 0x7fff)), odd);
  const auto quiet = hn::Or(bits, hn::Set(whole, 0x400000));
  const auto nan = hn::BitCast(F(), quiet);
  const auto chosen = hn::IfThenElse(hn::IsNaN(value), nan, hn::BitCast(F(), rounded));
  const auto top = hn::ShiftRight<16>(hn::BitCast(whole, chosen));
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(integers, top)), half, to);
}

// to[l * kWidth + i] = scale from[i * ld + l] for i < count, zero for count <= i < kWidth.
template <int64_t kWidth, class T>
HWY_INLINE void transpose_border(int64_t k, int64_t count, const T* from, int64_t ld, float scale,
                                 float* to) {
  for (int64_t l = 0; l < k; ++l)
    for (int64_t i = 0; i < kWidth; ++i)
      to[l * kWidth + i] = i < count ? scale * load1(from + i * ld + l) : 0;
}

// The same for count = kWidth. What the next panel will read is fetched meanwhile.
template <int64_t kWidth, class T>
HWY_INLINE void transpose_panel(int64_t k, const T* from, int64_t ld, float scale, float* to,
                                bool fetch) {
  static_assert(kWidth % 2 == 0);
  constexpr int64_t kLine = 64 / sizeof(T);
  int64_t l = 0;
  const auto fetch_next = [&] {
    if (fetch && l % kLine == 0)
      for (int64_t i = 0; i < kWidth; ++i) hwy::Prefetch(from + (kWidth + i) * ld + l);
  };
#if HWY_TARGET == HWY_AVX3
  for (; l + 16 <= k; l += 16) {
    fetch_next();
    constexpr int kCount = static_cast<int>(std::min<int64_t>(kWidth, 16));
    static_assert(kWidth == kCount || kWidth % 16 == 0);
    for (int64_t i = 0; i < kWidth; i += 16)
      transpose_square<kCount>(from + i * ld + l, ld, scale, to + l * kWidth + i, kWidth);
  }
#endif
  for (; l + 4 <= k; l += 4) {
    fetch_next();
    int64_t i = 0;
    for (; i + 4 <= kWidth; i += 4)
      transpose4(from + i * ld + l, ld, scale, to + l * kWidth + i, kWidth);
    if (i < kWidth) transpose2(from + i * ld + l, ld, scale, to + l * kWidth + i, kWidth);
  }
  transpose_border<kWidth>(k - l, kWidth, from + l, ld, scale, to + l * kWidth);
}

// All of the panels of [count, k] that lies as rows.
template <int64_t kWidth, class T>
HWY_INLINE void transpose_panels(int64_t k, int64_t count, const T* from, int64_t ld, float scale,
                                 float* to) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth)
    transpose_panel<kWidth>(k, from + i * ld, ld, scale, to + i * k, i + 2 * kWidth <= count);
  if (i < count) transpose_border<kWidth>(k, count - i, from + i * ld, ld, scale, to + i * k);
}

}  // namespace micro_internal

// Panels of kColumns columns of B, one after the other, from B [k, n] as it lies:
//   to[panel][l][j] = scale B[l, panel kColumns + j], zero beyond n;  to: panels_of(n) k kColumns
// T is float or uint16_t, the bits of bf16.
inline constexpr int64_t panels_of(int64_t n) { return (n + kColumns - 1) / kColumns; }

template <class T>
HWY_NOINLINE void pack_b(int64_t k, int64_t n, const T* b, int64_t ldb, float scale, float* to) {
  using namespace micro_internal;
  const V scales = hn::Set(F(), scale);
  // A few rows at a time: what is read and what is written then lie in few cache sets each.
  constexpr int64_t kGroup = 8;
  for (int64_t begin = 0; begin < k; begin += kGroup) {
    const int64_t end = std::min(k, begin + kGroup);
    for (int64_t j = 0; j < n; j += kColumns) {
      float* panel = to + j * k;
      const int64_t columns = std::min(n - j, kColumns);
      for (int64_t l = begin; l < end; ++l) {
        const T* from = b + l * ldb + j;
        float* row = panel + l * kColumns;
        if (columns == kColumns) {
          hn::Store(hn::Mul(scales, load(F(), from)), F(), row);
          hn::Store(hn::Mul(scales, load(F(), from + kLanes)), F(), row + kLanes);
        } else {
          for (int64_t i = 0; i < kColumns; ++i) row[i] = i < columns ? scale * load1(from + i) : 0;
        }
      }
    }
  }
}

// The same panels from the transpose of B, bt [n, k].
template <class T>
HWY_NOINLINE void pack_b_transposed(int64_t k, int64_t n, const T* bt, int64_t ld, float scale,
                                    float* to) {
  micro_internal::transpose_panels<kColumns>(k, n, bt, ld, scale, to);
}

// Strips of kRows rows of A, one after the other, from A [m, k] as it lies: for micro, strip s is
// Strip::packed(to + s kRows k). Rows beyond m are zeros.
template <class T>
HWY_NOINLINE void pack_a(int64_t m, int64_t k, const T* a, int64_t lda, float* to) {
  micro_internal::transpose_panels<kRows>(k, m, a, lda, 1, to);
}

// The same strips from the transpose of A, at [k, m].
template <class T>
HWY_NOINLINE void pack_a_transposed(int64_t m, int64_t k, const T* at, int64_t ld, float* to) {
  using namespace micro_internal;
  // Whole vectors are copied; what is too much is written over by the next column.
  constexpr int64_t kGroup = 16, kStep = std::min<int64_t>(kLanes, 8);
  constexpr int64_t kCopied = (kRows + kStep - 1) / kStep * kStep;
  const hn::CappedTag<float, kStep> f;
  for (int64_t begin = 0; begin < k; begin += kGroup) {
    const int64_t end = std::min(k, begin + kGroup);
    for (int64_t i = 0; i < m; i += kRows) {
      const T* from = at + begin * ld + i;
      float* column = to + i * k + begin * kRows;
      int64_t l = begin;
      if (i + kCopied <= m)
        for (; l + kCopied / kRows < end; ++l, from += ld, column += kRows)
          for (int64_t r = 0; r < kCopied; r += kStep) hn::StoreU(load(f, from + r), f, column + r);
      for (; l < end; ++l, from += ld, column += kRows)
        for (int64_t r = 0; r < kRows; ++r) column[r] = i + r < m ? load1(from + r) : 0;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace plait
HWY_AFTER_NAMESPACE();

#endif  // PLAIT_KERNELS_CPU_MICRO_INL_H_
