// Arithmetic that attention and its gradient share, for each target. Scores lie transposed: a row
// of `kColumns` queries for each key, so that a query is a lane and its softmax needs no sums
// across lanes.
#if defined(PLAIT_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLAIT_KERNELS_CPU_ATTENTION_INL_H_
#undef PLAIT_KERNELS_CPU_ATTENTION_INL_H_
#else
#define PLAIT_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <cmath>
#include <limits>

#include "plait/base/half.h"
#include "plait/kernels/cpu/attention_work.h"
#include "plait/kernels/cpu/micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait {
namespace HWY_NAMESPACE {
namespace attention_internal {

using namespace micro_internal;  // NOLINT(google-build-using-namespace)

constexpr float kLog2E = 1.44269504F, kLn2 = 0.69314718F;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// 2^x = power (1 + rest): power is a power of two, rest the polynomial of least relative error
// (2e-9) in what x has beyond a whole number.
struct Power {
  V power, rest;
};
HWY_INLINE Power power(V x) {
  const F f;
  const hn::RebindToSigned<F> i;
  // 1.5 x 2^23 rounds to a whole number; with 127 the low bits are the exponent of the result.
  const V magic = hn::Set(f, 12582912.0F + 127.0F);
  const V whole = hn::Add(x, magic);
  const V z = hn::Sub(x, hn::Sub(whole, magic));
  V p = hn::MulAdd(hn::Set(f, 1.5353305e-4F), z, hn::Set(f, 1.3398939e-3F));
  p = hn::MulAdd(p, z, hn::Set(f, 9.618438e-3F));
  p = hn::MulAdd(p, z, hn::Set(f, 5.5503323e-2F));
  p = hn::MulAdd(p, z, hn::Set(f, 2.4022648e-1F));
  p = hn::MulAdd(p, z, hn::Set(f, 6.9314720e-1F));
  return {hn::BitCast(f, hn::ShiftLeft<23>(hn::BitCast(i, whole))), hn::Mul(p, z)};
}

// 2^x for x <= 127, within 1.2e-7 of it; 0 below -127, NaN of NaN (Max and Min give their second
// operand then).
HWY_INLINE V exp2_of(V x) {
  const F f;
  const Power p = power(hn::Max(hn::Set(f, -127.0F), x));
  return hn::MulAdd(p.power, p.rest, p.power);
}

// tanh x = (e^2x - 1) / (e^2x + 1), accurate near 0 too.
HWY_INLINE V tanh_of(V x) {
  const F f;
  const V limit = hn::Set(f, 64.0F);
  const V y = hn::Max(hn::Neg(limit), hn::Min(limit, hn::Mul(x, hn::Set(f, 2 * kLog2E))));
  const Power p = power(y);
  const V e = hn::MulAdd(p.power, p.rest, hn::Sub(p.power, hn::Set(f, 1.0F)));
  return hn::Div(e, hn::Add(e, hn::Set(f, 2.0F)));
}

HWY_INLINE void store(V v, float* p) { hn::StoreU(v, F(), p); }
// bf16, rounded to nearest, ties to even; NaN stays NaN.
HWY_INLINE void store(V v, uint16_t* p) {
  const hn::RebindToUnsigned<F> u;
  const hn::RebindToSigned<F> i;
  const hn::Rebind<uint16_t, F> half;
  const auto bits = hn::BitCast(u, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(u, 0x7fff)), odd);
  const auto nan = hn::RebindMask(u, hn::Ne(v, v));
  const auto kept = hn::IfThenElse(nan, hn::Or(bits, hn::Set(u, 0x400000)), rounded);
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(i, hn::ShiftRight<16>(kept))), half, p);
}
HWY_INLINE void store1(float v, float* p) { *p = v; }
HWY_INLINE void store1(float v, uint16_t* p) { *p = bf16_bits(v); }

// to[i, l] = by from[i, l], between f32 and bf16.
template <class A, class B>
HWY_INLINE void scale_row(int64_t n, const A* from, float by, B* to) {
  const V factor = hn::Set(F(), by);
  int64_t l = 0;
  for (; l + kLanes <= n; l += kLanes) store(hn::Mul(factor, load(F(), from + l)), to + l);
  for (; l < n; ++l) store1(by * load1(from + l), to + l);
}
template <class A, class B>
HWY_NOINLINE void copy_rows(int64_t rows, int64_t n, const A* from, int64_t ld, B* to,
                            int64_t to_ld) {
  for (int64_t i = 0; i < rows; ++i) scale_row(n, from + i * ld, 1, to + i * to_ld);
}

// Asks for rows of the next block while this one is computed with: the `part`th of `parts`.
template <class T>
HWY_INLINE void prefetch_rows(const T* rows, int64_t ld, int64_t count, int64_t size, int64_t part,
                              int64_t parts) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i)
    for (int64_t l = 0; l < size + kLine - 1; l += kLine)
      __builtin_prefetch(rows + i * ld + std::min(l, size - 1), 0, 2);
}

// n = 11 in strips of 4, 4 and 3: even, because a short strip costs as much as a longer one.
struct Strips {
  int64_t n, count;
  explicit Strips(int64_t size) : n(size), count((size + kRows - 1) / kRows) {}
  int64_t begin(int64_t s) const { return s * n / count; }
};

// s[key, lane] = keys[key] . queries[lane] for a panel of queries
HWY_INLINE void scores(int64_t rows, int64_t size, const float* keys, const float* queries,
                       float* s, int64_t ld) {
  const Strips strips(rows);
  for (int64_t i = 0; i < strips.count; ++i) {
    const int64_t at = strips.begin(i);
    micro(strips.begin(i + 1) - at, size, Strip::rows(keys + at * size, size), queries, s + at * ld,
          ld, false);
  }
}

// Queries of a panel from position `query` on, and the keys [low, high) that some of them attend
// to: all lanes attend to those in [full, diagonal).
struct Range {
  int64_t low, full, diagonal, high;
  Range(const AttentionShape& n, int64_t query, int64_t queries, int64_t begin, int64_t end)
      : low(std::max(begin, n.first(query))), high(std::min(end, query + queries)) {
    high = std::max(low, high);
    full = std::clamp(query + kColumns - n.window, low, high);
    diagonal = std::clamp(query + 1, full, high);
  }
  bool empty() const { return low == high; }
};

// Lanes of queries that do not attend to a key: it lies behind them, or their window does.
struct Edge {
  hn::Vec<hn::RebindToSigned<F>> low, high;  // positions of the two vectors of queries
  int32_t window;
  Edge(int64_t query, int64_t w) : window(static_cast<int32_t>(w)) {
    const hn::RebindToSigned<F> i;
    low = hn::Iota(i, static_cast<int32_t>(query));
    high = hn::Iota(i, static_cast<int32_t>(query + kLanes));
  }
  // s, or minus infinity where the lane does not attend to `key`.
  HWY_INLINE V masked(V s, hn::Vec<hn::RebindToSigned<F>> queries, int64_t key) const {
    const F f;
    const hn::RebindToSigned<F> i;
    const auto at = hn::Set(i, static_cast<int32_t>(key));
    const auto behind = hn::Gt(at, queries);
    const auto before = hn::Gt(queries, hn::Set(i, static_cast<int32_t>(key) + window - 1));
    return hn::IfThenElse(hn::RebindMask(f, hn::Or(behind, before)), hn::Set(f, -kInfinity), s);
  }
};

}  // namespace attention_internal
}  // namespace HWY_NAMESPACE
}  // namespace plait
HWY_AFTER_NAMESPACE();

#endif  // PLAIT_KERNELS_CPU_ATTENTION_INL_H_
