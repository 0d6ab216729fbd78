// What the vector kernels share, compiled once for each instruction set: vectors of f32 read from
// and written to f32 or bf16 storage, loops over whole tensors, and the functions of math-inl.h.
//
// A kernel is one function that says what happens to the elements from i on; `io` moves a whole
// vector, or the last few elements, and `sweep` divides the tensor between the threads:
//
//   sweep(args.threads, n, [=](auto io, int64_t i) HWY_ATTR {
//     io.store(hn::Add(io.load(a + i), io.load(b + i)), y + i);
//   });
//
// An element's value never depends on where it lies in a vector or in a thread's part. Storage of
// bf16 is uint16_t: read exactly, and rounded to nearest, ties to even, when it is written.
#if defined(PLAIT_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLAIT_KERNELS_CPU_SIMD_INL_H_
#undef PLAIT_KERNELS_CPU_SIMD_INL_H_
#else
#define PLAIT_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstring>
#include <initializer_list>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "plait/base/half.h"
#include "plait/ir/op.h"
#include "plait/kernels/cpu/team.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using VF = hn::Vec<F32>;

inline constexpr int64_t kLanes = hn::MaxLanes(F32());

HWY_INLINE VF set(float x) { return hn::Set(F32(), x); }
HWY_INLINE VF zero() { return hn::Zero(F32()); }

// ---- storage ----------------------------------------------------------------------------------

HWY_INLINE VF widened(hn::Vec<U16> bits) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

// To nearest, ties to even; a NaN becomes a quiet one.
HWY_INLINE hn::Vec<U16> rounded(VF v) {
  const U32 u;
  const auto bits = hn::BitCast(u, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
  const auto near = hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(u, 0x400000));
  const auto is_nan = hn::RebindMask(u, hn::Ne(v, v));
  const auto top = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, near));
  return hn::DemoteTo(U16(), hn::BitCast(I32(), top));
}

HWY_INLINE VF load(const float* p) { return hn::LoadU(F32(), p); }
HWY_INLINE VF load(const uint16_t* p) { return widened(hn::LoadU(U16(), p)); }
HWY_INLINE void store(VF v, float* p) { hn::StoreU(v, F32(), p); }
HWY_INLINE void store(VF v, uint16_t* p) { hn::StoreU(rounded(v), U16(), p); }

// Moves whole vectors.
struct Whole {
  template <class T>
  HWY_INLINE VF load(const T* p) const {
    return HWY_NAMESPACE::load(p);
  }
  template <class T>
  HWY_INLINE void store(VF v, T* p) const {
    HWY_NAMESPACE::store(v, p);
  }
  // v, and `other` in the lanes that lie beyond the end
  HWY_INLINE VF or_else(VF v, VF /*other*/) const { return v; }
};

// Writes whole vectors past the cache; the addresses must be multiples of a vector's size.
struct Streamed : Whole {
  HWY_INLINE void store(VF v, float* p) const { hn::Stream(v, F32(), p); }
  HWY_INLINE void store(VF v, uint16_t* p) const { hn::Stream(rounded(v), U16(), p); }
};

// Moves the first n elements of a vector, n < kLanes; the others are read as zeros.
struct Rest {
  int64_t n;
  template <class T>
  HWY_INLINE VF load(const T* p) const {
    T whole[kLanes] = {};
    std::memcpy(whole, p, static_cast<size_t>(n) * sizeof(T));
    return HWY_NAMESPACE::load(whole);
  }
  template <class T>
  HWY_INLINE void store(VF v, T* p) const {
    T whole[kLanes];
    HWY_NAMESPACE::store(v, whole);
    std::memcpy(p, whole, static_cast<size_t>(n) * sizeof(T));
  }
  HWY_INLINE VF or_else(VF v, VF other) const {
    return hn::IfThenElse(hn::FirstN(F32(), static_cast<size_t>(n)), v, other);
  }
};

// ---- loops ------------------------------------------------------------------------------------

// The fewest elements for which another thread is worth waking.
inline constexpr int64_t kGrain = 16384;
// Results of so many bytes no longer lie in the caches when they are read again.
inline constexpr int64_t kStreamBytes = int64_t{24} << 20;

// Is this result better written past the cache? Not when it lies where an operand does: those
// lines are in the cache already.
inline bool streams(const TensorView& result) {
  return dtype_bytes(result.dtype, result.elements()) >= kStreamBytes;
}

// op(io, i) for the elements from begin to end, in order.
template <class Op>
HWY_INLINE void walk(int64_t begin, int64_t end, Op op) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) op(Whole(), i);
  if (i < end) op(Rest{end - i}, i);
}

// The same where op writes y + i, past the cache if `stream` says so; FlushStream must follow.
template <class T, class Op>
HWY_INLINE void walk(int64_t begin, int64_t end, bool stream, const T* y, Op op) {
  if (!stream) return walk(begin, end, op);
  constexpr uintptr_t kBytes = kLanes * sizeof(T);  // of a vector: what addresses are aligned to
  const auto beyond = reinterpret_cast<uintptr_t>(y + begin) % kBytes;
  const auto before = static_cast<int64_t>((kBytes - beyond) % kBytes / sizeof(T));
  int64_t i = std::min(end, begin + before);
  if (i > begin) op(Rest{i - begin}, begin);
  for (; i + kLanes <= end; i += kLanes) op(Streamed(), i);
  if (i < end) op(Rest{end - i}, i);
}

// op(io, i) for n elements, by the team.
template <class Op>
HWY_INLINE void sweep(int threads, int64_t n, Op op) {
  parallel_for(threads, n, kGrain,
               [&](int64_t begin, int64_t end) HWY_ATTR { walk(begin, end, op); });
}
template <class T, class Op>
HWY_INLINE void sweep(int threads, int64_t n, bool stream, const T* y, Op op) {
  parallel_for(threads, n, kGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    walk(begin, end, stream, y, op);
    hwy::FlushStream();
  });
}

// The sum of what op(io, i, sum) adds to its partial sums. Beyond the end, `io` reads zeros.
template <class Op>
HWY_INLINE float total(int64_t n, Op op) {
  VF a = zero(), b = zero(), c = zero(), e = zero();
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    a = op(Whole(), i, a);
    b = op(Whole(), i + kLanes, b);
    c = op(Whole(), i + 2 * kLanes, c);
    e = op(Whole(), i + 3 * kLanes, e);
  }
  for (; i + kLanes <= n; i += kLanes) a = op(Whole(), i, a);
  if (i < n) b = op(Rest{n - i}, i, b);
  return hn::GetLane(hn::SumOfLanes(F32(), hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

// f(row) for `rows` rows of so many elements, by the team.
template <class F>
HWY_INLINE void for_rows(int threads, int64_t rows, int64_t elements, F f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, elements));
  parallel_for(threads, rows, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t row = begin; row < end; ++row) f(row);
    hwy::FlushStream();  // rows may have been written past the cache
  });
}

// An operand or result that is f32 whatever the others are.
inline float* wide(const TensorView& x) {
  if (x.dtype != Dtype::f32)
    fail("a vector kernel was given {} where it takes f32 only", info(x.dtype).name);
  return x.as<float>();
}

// A scalar operand.
inline float scalar(const TensorView& x) {
  return x.dtype == Dtype::bf16 ? bf16_value(*x.as<uint16_t>()) : *x.as<float>();
}

// f(T*) with the storage type of a tensor as T.
template <class F>
HWY_INLINE void by_storage(const TensorView& x, F f) {
  if (x.dtype == Dtype::f32)
    f(x.as<float>());
  else if (x.dtype == Dtype::bf16)
    f(x.as<uint16_t>());
  else
    fail("a vector kernel was given {}; it takes f32 and bf16", info(x.dtype).name);
}

// Throws unless the tensors have one storage type.
inline void same_storage(std::initializer_list<const TensorView*> tensors) {
  for (const TensorView* x : tensors)
    if (x->dtype != (*tensors.begin())->dtype)
      fail("a vector kernel was given {} beside {}; it takes one type",
           info((*tensors.begin())->dtype).name, info(x->dtype).name);
}

// y = f(x), y = f(a, b) for every element.
template <class F>
HWY_INLINE void map1(const KernelArgs& args, F f) {
  const TensorView &in = args.in[0], &out = args.out[0];
  same_storage({&out, &in});
  by_storage(out, [&](auto* y) HWY_ATTR {
    const auto* x = in.as<std::remove_pointer_t<decltype(y)>>();
    sweep(args.threads, out.elements(), streams(out), y,
          [=](auto io, int64_t i) HWY_ATTR { io.store(f(io.load(x + i)), y + i); });
  });
}
template <class F>
HWY_INLINE void map2(const KernelArgs& args, F f) {
  const TensorView& out = args.out[0];
  same_storage({&out, &args.in[0], &args.in[1]});
  by_storage(out, [&](auto* y) HWY_ATTR {
    const auto* a = args.in[0].as<std::remove_pointer_t<decltype(y)>>();
    const auto* b = args.in[1].as<std::remove_pointer_t<decltype(y)>>();
    sweep(args.threads, out.elements(), streams(out), y,
          [=](auto io, int64_t i) HWY_ATTR { io.store(f(io.load(a + i), io.load(b + i)), y + i); });
  });
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the guard of one instruction set

// What every kernel file ends with: the function that chooses the instruction set.
#if HWY_ONCE && !defined(PLAIT_KERNEL)
#define PLAIT_KERNEL(name) \
  HWY_EXPORT(name);        \
  void fast_##name(const KernelArgs& args) { HWY_DYNAMIC_DISPATCH(name)(args); }
#endif
