// Rotary positions. Cosines and sines of one token serve all of its heads: they are computed once a
// token, on vectors, into a table on the stack.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/rope.cc"
#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include <cmath>

#include "hwy/foreach_target.h"
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

using F64 = hn::ScalableTag<double>;

// So many pairs are turned at a time; heads of more than twice as many values take another pass.
constexpr int64_t kPairs = 128;
// Beyond such angles, in radians, the C library's functions are called.
constexpr double kLargestAngle = 0x1p28;

struct Frequencies {
  alignas(64) double value[kPairs] = {};  // beyond `count`: zeros
  int64_t count = 0;
  double largest = 0;
};

// In the order of the elements that they multiply: y = x cos + partner sin.
struct Table {
  alignas(64) float cos[2 * kPairs];
  alignas(64) float sin[2 * kPairs];
};

struct RopeAttrs {
  int64_t size, rotary, pairs;
  bool interleaved;
  double sign;
  float magnitude;
  explicit RopeAttrs(const Attrs& attrs)
      : size(static_cast<int64_t>(attr(attrs, "head_size"))),
        rotary(static_cast<int64_t>(attr_or(attrs, "rotary_size", static_cast<double>(size)))),
        pairs(rotary / 2),
        interleaved(attr_or(attrs, "interleaved", 0) != 0),
        sign(attr_or(attrs, "inverse", 0) != 0 ? -1 : 1),
        magnitude(static_cast<float>(attr_or(attrs, "magnitude", 1))) {}
};

inline Frequencies frequencies(const Attrs& attrs, const RopeAttrs& rope, int64_t first) {
  const std::vector<double>* given = list_attr(attrs, "frequencies");
  const double theta = given != nullptr ? 1 : attr(attrs, "theta");
  Frequencies f;
  f.count = std::min(kPairs, rope.pairs - first);
  for (int64_t i = 0; i < f.count; ++i) {
    const double exponent =
        -2.0 * static_cast<double>(first + i) / static_cast<double>(rope.rotary);
    f.value[i] =
        given != nullptr ? (*given)[static_cast<size_t>(first + i)] : std::pow(theta, exponent);
    f.largest = std::max(f.largest, std::abs(f.value[i]));
  }
  return f;
}

// angle = quarter turns x pi / 2 + rest, |rest| <= pi / 4; rest in f32, from arithmetic in double
// with pi / 2 in three parts, the first two of 24 bits: whole products up to 2^29 turns.
HWY_INLINE void reduce(const Frequencies& f, double position, float* rest, int32_t* quarters) {
  const F64 d;
  const hn::Rebind<float, F64> narrow;
  const hn::Rebind<int32_t, F64> whole;
  constexpr auto kStep = static_cast<int64_t>(hn::MaxLanes(F64()));
  for (int64_t i = 0; i < f.count; i += kStep) {
    const auto angle = hn::Mul(hn::Load(d, f.value + i), hn::Set(d, position));
    const auto n = hn::Round(hn::Mul(angle, hn::Set(d, 0.63661977236758134308)));
    auto r = hn::NegMulAdd(n, hn::Set(d, 0x1.921fb4p+0), angle);
    r = hn::NegMulAdd(n, hn::Set(d, 0x1.4442dp-24), r);
    r = hn::NegMulAdd(n, hn::Set(d, 0x1.8469898cc5170p-48), r);
    hn::Store(hn::DemoteTo(narrow, r), narrow, rest + i);
    hn::Store(hn::DemoteTo(whole, n), whole, quarters + i);
  }
}

struct Turn {
  VF cos, sin;
};

// cos and sin of q quarter turns and r: 1 ulp (minimax polynomials of our own).
HWY_INLINE Turn turn(VF r, hn::Vec<I32> q) {
  const I32 i;
  const VF square = hn::Mul(r, r);
  VF s = hn::MulAdd(set(-0.0001951461883f), square, set(0.008332155926f));
  s = hn::MulAdd(s, square, set(-0.1666665453f));
  s = hn::MulAdd(hn::Mul(s, square), r, r);
  VF c = hn::MulAdd(set(2.443771765e-5f), square, set(-0.001388736134f));
  c = hn::MulAdd(c, square, set(0.04166664675f));
  c = hn::MulAdd(hn::Mul(c, square), square, hn::NegMulAdd(set(0.5f), square, set(1)));
  const auto one = hn::Set(i, 1);
  const auto odd = hn::RebindMask(F32(), hn::Eq(hn::And(q, one), one));
  const auto sin_sign = hn::ShiftLeft<31>(hn::ShiftRight<1>(q));
  const auto cos_sign = hn::ShiftLeft<31>(hn::ShiftRight<1>(hn::Add(q, one)));
  return {hn::Xor(hn::IfThenElse(odd, s, c), hn::BitCast(F32(), cos_sign)),
          hn::Xor(hn::IfThenElse(odd, c, s), hn::BitCast(F32(), sin_sign))};
}

HWY_INLINE void fill(const Frequencies& f, const RopeAttrs& rope, int32_t position, Table& table) {
  alignas(64) float rest[kPairs];
  alignas(64) int32_t quarters[kPairs];
  const double turned = rope.sign * position;
  if (std::abs(turned) * f.largest < kLargestAngle) {
    reduce(f, turned, rest, quarters);
    const int64_t padded = (f.count + kLanes - 1) / kLanes * kLanes;
    for (int64_t i = f.count; i < padded; ++i) rest[i] = 0, quarters[i] = 0;
    for (int64_t i = 0; i < padded; i += kLanes) {
      const Turn t = turn(hn::Load(F32(), rest + i), hn::Load(I32(), quarters + i));
      hn::Store(hn::Mul(t.cos, set(rope.magnitude)), F32(), table.cos + i);
      hn::Store(hn::Mul(t.sin, set(rope.magnitude)), F32(), table.sin + i);
    }
  } else {
    for (int64_t i = 0; i < f.count; ++i) {
      const double angle = turned * f.value[i];
      table.cos[i] = static_cast<float>(rope.magnitude * std::cos(angle));
      table.sin[i] = static_cast<float>(rope.magnitude * std::sin(angle));
    }
  }
  if (!rope.interleaved) return;
  for (int64_t i = f.count - 1; i >= 0; --i) {  // each value twice
    table.cos[2 * i] = table.cos[2 * i + 1] = table.cos[i];
    table.sin[2 * i + 1] = table.sin[i];
    table.sin[2 * i] = -table.sin[i];
  }
}

// Pairs (x, x + apart) of one head.
template <class T>
HWY_INLINE void turn_halves(const T* x, T* y, int64_t apart, const Table& table, int64_t count) {
  walk(0, count, [&](auto io, int64_t i) HWY_ATTR {
    const VF low = io.load(x + i), high = io.load(x + apart + i);
    const VF c = io.load(table.cos + i), s = io.load(table.sin + i);
    io.store(hn::NegMulAdd(high, s, hn::Mul(low, c)), y + i);
    io.store(hn::MulAdd(low, s, hn::Mul(high, c)), y + apart + i);
  });
}

// Pairs of neighbours.
template <class T>
HWY_INLINE void turn_neighbours(const T* x, T* y, const Table& table, int64_t count) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < 2 * count; i += 2) {
    const VF low = load(x + i), high = load(x + i + 1);
    const VF c = load(table.cos + i), s = load(table.sin + i + 1);
    store(hn::NegMulAdd(high, s, hn::Mul(low, c)), y + i);
    store(hn::MulAdd(low, s, hn::Mul(high, c)), y + i + 1);
  }
#else
  walk(0, 2 * count, [&](auto io, int64_t i) HWY_ATTR {
    const VF v = io.load(x + i), partner = hn::Reverse2(F32(), v);
    io.store(hn::MulAdd(partner, io.load(table.sin + i), hn::Mul(v, io.load(table.cos + i))),
             y + i);
  });
#endif
}

// The pairs from `first` on, of every head of every token.
template <class T>
HWY_INLINE void rope_pairs(const KernelArgs& args, const RopeAttrs& rope, const T* x, T* y,
                           int64_t first) {
  const Frequencies f = frequencies(*args.attrs, rope, first);
  const int64_t tokens = args.in[0].dims[0], width = args.in[0].dims[1];
  const int32_t* positions = args.in[1].as<int32_t>();
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width));
  parallel_for(args.threads, tokens, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    Table table;
    for (int64_t t = begin; t < end; ++t) {
      if (t == begin || positions[t] != positions[t - 1]) fill(f, rope, positions[t], table);
      for (int64_t at = t * width; at < (t + 1) * width; at += rope.size) {
        if (rope.interleaved)
          turn_neighbours(x + at + 2 * first, y + at + 2 * first, table, f.count);
        else
          turn_halves(x + at + first, y + at + first, rope.pairs, table, f.count);
        if (first == 0 && rope.rotary < rope.size)
          std::memcpy(y + at + rope.rotary, x + at + rope.rotary,
                      static_cast<size_t>(rope.size - rope.rotary) * sizeof(T));
      }
    }
  });
}

void rope(const KernelArgs& args) {
  const RopeAttrs rope(*args.attrs);
  same_storage({&args.in[0], &args.out[0]});
  by_storage(args.in[0], [&](auto* x) HWY_ATTR {
    auto* y = args.out[0].as<std::remove_pointer_t<decltype(x)>>();
    for (int64_t first = 0; first < rope.pairs; first += kPairs)
      rope_pairs(args, rope, x, y, first);
  });
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {
PLAIT_KERNEL(rope)
}  // namespace plait
#endif
