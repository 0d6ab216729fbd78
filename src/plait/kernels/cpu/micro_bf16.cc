#include "plait/kernels/cpu/micro_bf16.h"

#include <atomic>

#include "plait/base/error.h"
#include "plait/kernels/cpu/transpose16.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define PLAIT_X86 1
#else
#define PLAIT_X86 0
#endif

namespace plait {

namespace {

bool has(Bf16Unit unit) {
  if (unit == Bf16Unit::none) return true;
#if PLAIT_X86
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return false;
  if (unit == Bf16Unit::avx512)
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0;
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16) == 0 || (d & kTile) == 0)
    return false;
  constexpr int64_t kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

// AMX is always faster than products in f32. AVX-512 BF16 is so on AMD's processors; on Intel's it
// was measured to take twice the time.
bool fast(Bf16Unit unit) {
#if PLAIT_X86
  return has(unit) && (unit == Bf16Unit::amx || __builtin_cpu_is("amd"));
#else
  return has(unit);
#endif
}

std::atomic<Bf16Unit>& current() {
  static std::atomic<Bf16Unit> unit = fast(Bf16Unit::amx)      ? Bf16Unit::amx
                                      : fast(Bf16Unit::avx512) ? Bf16Unit::avx512
                                                               : Bf16Unit::none;
  return unit;
}

}  // namespace

Bf16Unit bf16_unit() { return current().load(std::memory_order_relaxed); }

bool use_bf16_unit(Bf16Unit unit) {
  if (!has(unit)) return false;
  current() = unit;
  return true;
}

const char* name(Bf16Unit unit) {
  return unit == Bf16Unit::amx      ? "AMX"
         : unit == Bf16Unit::avx512 ? "AVX-512 BF16"
                                    : "no instructions for bf16";
}

namespace bf16_micro {

#if PLAIT_X86

#define PLAIT_BF16 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define PLAIT_AMX \
  __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16")))
#define PLAIT_INLINE inline __attribute__((always_inline))

namespace {

// ---- packing ------------------------------------------------------------------------------------

// The first n of 32 elements at p, the others zero; all of them or none may lie beyond the matrix.
PLAIT_AVX512 PLAIT_INLINE __mmask32 first(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : n <= 0 ? 0 : (__mmask32{1} << n) - 1;
}
PLAIT_AVX512 PLAIT_INLINE __m512i load(const uint16_t* p, __mmask32 mask) {
  return _mm512_maskz_loadu_epi16(mask, p);
}

}  // namespace

PLAIT_AVX512 void pack_b(int64_t k, int64_t n, const uint16_t* b, int64_t ldb, uint16_t* to) {
  const int64_t depth = whole(k);
  alignas(64) uint16_t order[2][32];
  for (int i = 0; i < 32; ++i) {
    order[0][i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
    order[1][i] = static_cast<uint16_t>(16 + i / 2 + i % 2 * 32);
  }
  const __m512i low = _mm512_load_si512(order[0]), high = _mm512_load_si512(order[1]);
  // A few rows at a time: what is read and what is written then lie in few cache sets each.
  constexpr int64_t kGroup = 16;
  for (int64_t begin = 0; begin < depth; begin += kGroup)
    for (int64_t j = 0; j < n; j += kColumns) {
      const __mmask32 columns = first(n - j);
      uint16_t* panel = to + j * depth + begin * kColumns;
      const uint16_t* from = b + begin * ldb + j;
      for (int64_t l = begin; l < begin + kGroup; l += 2, panel += 2 * kColumns, from += 2 * ldb) {
        const __m512i even = load(from, l < k ? columns : 0);
        const __m512i odd = load(from + ldb, l + 1 < k ? columns : 0);
        _mm512_store_si512(panel, _mm512_permutex2var_epi16(even, low, odd));
        _mm512_store_si512(panel + kColumns, _mm512_permutex2var_epi16(even, high, odd));
      }
    }
}

PLAIT_AVX512 void pack_b_transposed(int64_t k, int64_t n, const uint16_t* bt, int64_t ld,
                                    uint16_t* to) {
  const int64_t depth = whole(k);
  for (int64_t j = 0; j < whole(n); j += 16) {
    uint16_t* panel = to + j / kColumns * kColumns * depth + j % kColumns * 2;
    for (int64_t l = 0; l < depth; l += kStep, panel += kStep * kColumns) {
      const __mmask32 summands = first(k - l);
      const uint16_t* from = bt + j * ld + l;
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) r[i] = load(from + i * ld, j + i < n ? summands : 0);
      transpose16(r);  // of pairs
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_store_si512(panel + i * 2 * kColumns, r[i]);
    }
  }
}

PLAIT_AVX512 void pack_a(int64_t m, int64_t k, const uint16_t* a, int64_t lda, uint16_t* to) {
  const int64_t depth = whole(k);
  for (int64_t i = 0; i < whole(m); ++i) {
    uint16_t* strip = to + i / kRows * kRows * depth + i % kRows * kStep;
    const uint16_t* from = a + i * lda;
    for (int64_t l = 0; l < depth; l += kStep, strip += kRows * kStep)
      _mm512_store_si512(strip, load(from + l, i < m ? first(k - l) : 0));
  }
}

PLAIT_AVX512 void pack_a_transposed(int64_t m, int64_t k, const uint16_t* at, int64_t ld,
                                    uint16_t* to) {
  const int64_t depth = whole(k);
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 32; ++i) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
  const __m512i pairs = _mm512_load_si512(order);
  for (int64_t l = 0; l < depth; l += kStep)
    for (int64_t i = 0; i < whole(m); i += 16) {
      const auto rows = static_cast<__mmask16>(first(m - i));
      const uint16_t* from = at + l * ld + i;
      __m512i r[16];
#pragma GCC unroll 16
      for (int p = 0; p < 16; ++p) {
        const int64_t at_l = l + 2 * p;
        const __m256i even =
            _mm256_maskz_loadu_epi16(at_l < k ? rows : __mmask16{0}, from + 2 * p * ld);
        const __m256i odd =
            _mm256_maskz_loadu_epi16(at_l + 1 < k ? rows : __mmask16{0}, from + (2 * p + 1) * ld);
        r[p] = _mm512_permutexvar_epi16(pairs,
                                        _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1));
      }
      transpose16(r);  // of pairs
      uint16_t* strip = to + i / kRows * kRows * depth + l * kRows + i % kRows * kStep;
#pragma GCC unroll 16
      for (int p = 0; p < 16; ++p) _mm512_store_si512(strip + p * kStep, r[p]);
    }
}

// ---- multiplying --------------------------------------------------------------------------------

namespace {

// Two by two tiles of 16 rows, or one by two.
template <bool kTall>
PLAIT_AMX void tiles(int64_t depth, const Strip& a, const uint16_t* b, float* c, int64_t ldc,
                     bool add) {
  const auto stride = static_cast<size_t>(ldc) * sizeof(float),
             b_stride = 2 * kColumns * sizeof(*b);
  const size_t a_stride = static_cast<size_t>(a.ld) * sizeof(*b);
  if (add) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    if (kTall) _tile_loadd(2, c + 16 * ldc, stride);
    if (kTall) _tile_loadd(3, c + 16 * ldc + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if (kTall) _tile_zero(2);
    if (kTall) _tile_zero(3);
  }
  const uint16_t* p = a.data;
  for (int64_t l = 0; l < depth; l += kStep, p += a.step, b += kStep * kColumns) {
    _tile_loadd(4, p, a_stride);
    _tile_loadd(6, b, b_stride);
    _tile_loadd(7, b + 32, b_stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (kTall) {
      _tile_loadd(5, p + 16 * a.ld, a_stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  if (kTall) _tile_stored(2, c + 16 * ldc, stride);
  if (kTall) _tile_stored(3, c + 16 * ldc + 16, stride);
}

// Rows of c, two vectors each; the accumulators are single variables, because compilers keep arrays
// of vectors in memory.
#define PLAIT_ROWS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10)
#define PLAIT_LOAD(i)                                                                  \
  [[maybe_unused]] __m512 low##i = _mm512_setzero_ps(), high##i = _mm512_setzero_ps(); \
  if (i < kCount && add) {                                                             \
    low##i = _mm512_loadu_ps(c + i * ldc);                                             \
    high##i = _mm512_loadu_ps(c + i * ldc + 16);                                       \
  }
#define PLAIT_MULTIPLY(i)                                                  \
  if (i < kCount) {                                                        \
    int32_t bits;                                                          \
    __builtin_memcpy(&bits, p + i * a.ld, sizeof(bits));                   \
    const auto pair = reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits)); \
    low##i = _mm512_dpbf16_ps(low##i, pair, b_low);                        \
    high##i = _mm512_dpbf16_ps(high##i, pair, b_high);                     \
  }
#define PLAIT_STORE(i)                           \
  if (i < kCount) {                              \
    _mm512_storeu_ps(c + i * ldc, low##i);       \
    _mm512_storeu_ps(c + i * ldc + 16, high##i); \
  }

template <int kCount>
PLAIT_BF16 void rows_of(int64_t depth, const Strip& a, const uint16_t* b, float* c, int64_t ldc,
                        bool add) {
  static_assert(kCount <= 11, "PLAIT_ROWS has 11");
  PLAIT_ROWS(PLAIT_LOAD)
  for (int64_t l = 0; l < depth; l += 2, b += 2 * kColumns) {
    const uint16_t* p = a.data + l / kStep * a.step + l % kStep;
    const auto b_low = reinterpret_cast<__m512bh>(_mm512_load_si512(b));
    const auto b_high = reinterpret_cast<__m512bh>(_mm512_load_si512(b + kColumns));
    PLAIT_ROWS(PLAIT_MULTIPLY)
  }
  PLAIT_ROWS(PLAIT_STORE)
}

#undef PLAIT_ROWS
#undef PLAIT_LOAD
#undef PLAIT_MULTIPLY
#undef PLAIT_STORE

// 16 or 32 rows of all columns.
void tile(Bf16Unit unit, bool tall, int64_t depth, Strip a, const uint16_t* panel, float* c,
          int64_t ldc, bool add) {
  if (unit == Bf16Unit::amx)
    return tall ? tiles<true>(depth, a, panel, c, ldc, add)
                : tiles<false>(depth, a, panel, c, ldc, add);
  const auto next = [&](int64_t rows) {
    a.data += rows * a.ld;
    c += rows * ldc;
  };
  if (tall) {
    rows_of<11>(depth, a, panel, c, ldc, add);
    next(11);
    rows_of<11>(depth, a, panel, c, ldc, add);
    next(11);
    rows_of<10>(depth, a, panel, c, ldc, add);
  } else {
    rows_of<8>(depth, a, panel, c, ldc, add);
    next(8);
    rows_of<8>(depth, a, panel, c, ldc, add);
  }
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

PLAIT_AMX void configure() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}
PLAIT_AMX void release() { _tile_release(); }

}  // namespace

Session::Session() : unit_(bf16_unit()) {
  PLAIT_CHECK(unit_ != Bf16Unit::none, "this processor has no instructions for bf16");
  if (unit_ == Bf16Unit::amx) configure();
}

Session::~Session() {
  if (unit_ == Bf16Unit::amx) release();
}

void Session::multiply(int64_t rows, int64_t columns, int64_t depth, const Strip& a,
                       const uint16_t* panel, float* c, int64_t ldc, bool add) const {
  const bool tall = rows > 16;
  if (columns == kColumns && (rows == kRows || rows == 16))
    return tile(unit_, tall, depth, a, panel, c, ldc, add);
  alignas(64) float buffer[kRows * kColumns];
  if (add) {
    for (int64_t i = 0; i < (tall ? kRows : 16); ++i)
      for (int64_t j = 0; j < kColumns; ++j)
        buffer[i * kColumns + j] = i < rows && j < columns ? c[i * ldc + j] : 0;
  }
  tile(unit_, tall, depth, a, panel, buffer, kColumns, add);
  for (int64_t i = 0; i < rows; ++i)
    __builtin_memcpy(c + i * ldc, buffer + i * kColumns,
                     static_cast<size_t>(columns) * sizeof(float));
}

#else  // no unit

namespace {
[[noreturn]] void missing() {
  check_failed("bf16_unit() != none", __FILE__, __LINE__, "no instructions for bf16 here");
}
}  // namespace

void pack_b(int64_t, int64_t, const uint16_t*, int64_t, uint16_t*) { missing(); }
void pack_b_transposed(int64_t, int64_t, const uint16_t*, int64_t, uint16_t*) { missing(); }
void pack_a(int64_t, int64_t, const uint16_t*, int64_t, uint16_t*) { missing(); }
void pack_a_transposed(int64_t, int64_t, const uint16_t*, int64_t, uint16_t*) { missing(); }
Session::Session() : unit_(Bf16Unit::none) { missing(); }
Session::~Session() = default;
void Session::multiply(int64_t, int64_t, int64_t, const Strip&, const uint16_t*, float*, int64_t,
                       bool) const {
  missing();
}

#endif

}  // namespace bf16_micro
}  // namespace plait
