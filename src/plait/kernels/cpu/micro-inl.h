// The register-blocked product that gemm, attention and the linear loss are made of:
//
//   c [rows, kColumns] = (c +) sum over l < k of a(i, l) b[l, j]      all f32, c with stride ldc
//
// b is a panel: kColumns = 2 vectors wide, rows l one after the other, aligned to 64 bytes, made by
// pack_b or pack_b_transposed; columns beyond the matrix are zeros there. a is read in place or
// packed, in one of two ways that Strip names:
//
//   Strip::rows(p, ld)        a(i, l) = p[i * ld + l]   rows of a matrix as it lies
//   Strip::columns(p, ld)     a(i, l) = p[l * ld + i]   a transposed matrix as it lies; or packed
//   by
//                                                       pack_a, with ld = kRows
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

struct Strip {
  const float* data;
  int64_t ld;
  bool by_columns;
  static Strip rows(const float* p, int64_t ld) { return {p, ld, false}; }
  static Strip columns(const float* p, int64_t ld) { return {p, ld, true}; }
};

namespace micro_internal {

// The accumulators are single variables: compilers keep arrays of vectors in memory.
#define PLAIT_ROWS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define PLAIT_DECLARE(i) [[maybe_unused]] V low##i = hn::Zero(f), high##i = hn::Zero(f);
#define PLAIT_PREFETCH(i) \
  if constexpr (i < kCount) hwy::Prefetch(c + i * ldc);
#define PLAIT_MULTIPLY(i)                                     \
  if constexpr (i < kCount) {                                 \
    const V one = hn::Set(f, kByColumns ? a[i] : a[i * lda]); \
    low##i = hn::MulAdd(one, b_low, low##i);                  \
    high##i = hn::MulAdd(one, b_high, high##i);               \
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

template <int kCount, bool kByColumns>
HWY_NOINLINE void tile(int64_t k, const float* HWY_RESTRICT a, int64_t lda,
                       const float* HWY_RESTRICT b, float* HWY_RESTRICT c, int64_t ldc, bool add) {
  static_assert(kCount <= 12, "PLAIT_ROWS has 12");
  const F f;
  PLAIT_ROWS(PLAIT_DECLARE)
  PLAIT_ROWS(PLAIT_PREFETCH)
  for (int64_t l = 0; l < k; ++l) {
    const V b_low = hn::Load(f, b), b_high = hn::Load(f, b + kLanes);
    PLAIT_ROWS(PLAIT_MULTIPLY)
    a += kByColumns ? lda : 1;
    b += kColumns;
  }
  PLAIT_ROWS(PLAIT_STORE)
}

#undef PLAIT_ROWS
#undef PLAIT_DECLARE
#undef PLAIT_PREFETCH
#undef PLAIT_MULTIPLY
#undef PLAIT_STORE

template <int kCount>
HWY_INLINE void tile_of(int64_t rows, int64_t k, const Strip& a, const float* b, float* c,
                        int64_t ldc, bool add) {
  if constexpr (kCount > 0) {
    if (rows != kCount) return tile_of<kCount - 1>(rows, k, a, b, c, ldc, add);
    if (a.by_columns)
      tile<kCount, true>(k, a.data, a.ld, b, c, ldc, add);
    else
      tile<kCount, false>(k, a.data, a.ld, b, c, ldc, add);
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
HWY_INLINE V load(const float* p) { return hn::LoadU(F(), p); }
HWY_INLINE V load(const uint16_t* p) {
  const hn::Rebind<uint16_t, F> half;
  const hn::RebindToUnsigned<F> whole;
  return hn::BitCast(F(), hn::ShiftLeft<16>(hn::PromoteTo(whole, hn::LoadU(half, p))));
}

#if HWY_TARGET == HWY_SCALAR
template <class T>
HWY_INLINE void copy4(const T* from, float* to) {
  for (int i = 0; i < 4; ++i) to[i] = load1(from + i);
}

// to[l * to_ld + i] = scale from[i * ld + l] for i < 4 and l < 4.
template <class T>
HWY_INLINE void transpose4(const T* from, int64_t ld, float scale, float* to, int64_t to_ld) {
  for (int l = 0; l < 4; ++l)
    for (int i = 0; i < 4; ++i) to[l * to_ld + i] = scale * load1(from + i * ld + l);
}
#else
using F4 = hn::CappedTag<float, 4>;
HWY_INLINE hn::Vec<F4> load4(const float* p) { return hn::LoadU(F4(), p); }
HWY_INLINE hn::Vec<F4> load4(const uint16_t* p) {
  const hn::Rebind<uint16_t, F4> half;
  const hn::RebindToUnsigned<F4> whole;
  return hn::BitCast(F4(), hn::ShiftLeft<16>(hn::PromoteTo(whole, hn::LoadU(half, p))));
}
template <class T>
HWY_INLINE void copy4(const T* from, float* to) {
  hn::StoreU(load4(from), F4(), to);
}

// to[l * to_ld + i] = scale from[i * ld + l] for i < 4 and l < 4.
template <class T>
HWY_INLINE void transpose4(const T* from, int64_t ld, float scale, float* to, int64_t to_ld) {
  const F4 f;
  const hn::RepartitionToWide<F4> pairs;
  const auto by = hn::Set(f, scale);
  const auto r0 = hn::Mul(by, load4(from)), r1 = hn::Mul(by, load4(from + ld));
  const auto r2 = hn::Mul(by, load4(from + 2 * ld)), r3 = hn::Mul(by, load4(from + 3 * ld));
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(f, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(f, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(f, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(f, r2, r3));
  hn::StoreU(hn::BitCast(f, hn::InterleaveLower(pairs, low01, low23)), f, to);
  hn::StoreU(hn::BitCast(f, hn::InterleaveUpper(pairs, low01, low23)), f, to + to_ld);
  hn::StoreU(hn::BitCast(f, hn::InterleaveLower(pairs, high01, high23)), f, to + 2 * to_ld);
  hn::StoreU(hn::BitCast(f, hn::InterleaveUpper(pairs, high01, high23)), f, to + 3 * to_ld);
}
#endif

// to[l * kWidth + i] = scale from[i * ld + l] for i < count, zero for count <= i < kWidth.
template <int64_t kWidth, class T>
HWY_INLINE void transpose_panel(int64_t k, int64_t count, const T* from, int64_t ld, float scale,
                                float* to) {
  const int64_t fours = count == kWidth ? kWidth / 4 * 4 : 0;
  int64_t l = 0;
  for (; l + 4 <= k; l += 4) {
    for (int64_t i = 0; i < fours; i += 4)
      transpose4(from + i * ld + l, ld, scale, to + l * kWidth + i, kWidth);
    for (int64_t i = fours; i < kWidth; ++i)
      for (int64_t m = l; m < l + 4; ++m)
        to[m * kWidth + i] = i < count ? scale * load1(from + i * ld + m) : 0;
  }
  for (; l < k; ++l)
    for (int64_t i = 0; i < kWidth; ++i)
      to[l * kWidth + i] = i < count ? scale * load1(from + i * ld + l) : 0;
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
          hn::Store(hn::Mul(scales, load(from)), F(), row);
          hn::Store(hn::Mul(scales, load(from + kLanes)), F(), row + kLanes);
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
  for (int64_t j = 0; j < n; j += kColumns)
    micro_internal::transpose_panel<kColumns>(k, std::min(n - j, kColumns), bt + j * ld, ld, scale,
                                              to + j * k);
}

// Strips of kRows rows of A, one after the other, from A [m, k] as it lies: for micro, strip s is
// Strip::columns(to + s kRows k, kRows). Rows beyond m are zeros.
template <class T>
HWY_NOINLINE void pack_a(int64_t m, int64_t k, const T* a, int64_t lda, float* to) {
  for (int64_t i = 0; i < m; i += kRows)
    micro_internal::transpose_panel<kRows>(k, std::min(m - i, kRows), a + i * lda, lda, 1,
                                           to + i * k);
}

// The same strips from the transpose of A, at [k, m].
template <class T>
HWY_NOINLINE void pack_a_transposed(int64_t m, int64_t k, const T* at, int64_t ld, float* to) {
  using namespace micro_internal;
  constexpr int64_t kGroup = 16;
  for (int64_t begin = 0; begin < k; begin += kGroup) {
    const int64_t end = std::min(k, begin + kGroup);
    for (int64_t i = 0; i < m; i += kRows) {
      const int64_t rows = std::min(m - i, kRows);
      for (int64_t l = begin; l < end; ++l) {
        const T* from = at + l * ld + i;
        float* column = to + i * k + l * kRows;
        int64_t r = 0;
        for (; r + 4 <= rows; r += 4) copy4(from + r, column + r);
        for (; r < kRows; ++r) column[r] = r < rows ? load1(from + r) : 0;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace plait
HWY_AFTER_NAMESPACE();

#endif  // PLAIT_KERNELS_CPU_MICRO_INL_H_
