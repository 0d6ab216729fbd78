// exp, tanh, sigmoid and the Gaussian's distribution on f32 vectors. Polynomials are minimax fits
// (Remez exchange) of our own. Errors are the largest found at 3 million arguments with FMA, in
// units in the last place (ulp); NaN gives NaN.
#if defined(PLAIT_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLAIT_KERNELS_CPU_MATH_INL_H_
#undef PLAIT_KERNELS_CPU_MATH_INL_H_
#else
#define PLAIT_KERNELS_CPU_MATH_INL_H_
#endif

#include "plait/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

// min(high, x) and max(low, x), where a NaN in x stays one.
HWY_INLINE VF at_most(VF high, VF x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(high, x);  // gives its second operand when either is NaN
#else
  return hn::IfThenElse(hn::Gt(x, high), high, x);
#endif
}
HWY_INLINE VF at_least(VF low, VF x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(low, x);
#else
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#endif
}

namespace math_internal {

// exp x = 2^n p with p about in [0.7, 1.42].
struct Exp {
  VF p;
  hn::Vec<I32> n;
};

HWY_INLINE Exp split_exp(VF x) {
  // Adding 1.5 x 2^23 rounds to a whole number, which the low bits of the sum then hold.
  const VF shift = set(12582912.0f);
  const VF sum = hn::MulAdd(x, set(1.44269504f), shift), n = hn::Sub(sum, shift);
  VF r = hn::NegMulAdd(n, set(0.693145751953125f), x);  // ln 2 in two parts, the first short
  r = hn::NegMulAdd(n, set(1.42860682e-6f), r);
  VF p = hn::MulAdd(set(0.001381441906f), r, set(0.00836878134f));
  p = hn::MulAdd(p, r, set(0.04166839536f));
  p = hn::MulAdd(p, r, set(0.166665201f));
  p = hn::MulAdd(p, r, set(0.4999999341f));
  p = hn::MulAdd(hn::Mul(p, r), r, r);
  const I32 i;
  return {hn::Add(p, set(1)),
          hn::Sub(hn::BitCast(i, sum), hn::Set(i, 0x4b400000))};  // the bits of `shift`
}

HWY_INLINE VF power_of_two(hn::Vec<I32> n) {
  return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(I32(), 127))));
}

}  // namespace math_internal

// exp x: 1.1 ulp, subnormal results and overflow included.
HWY_INLINE VF exp(VF x) {
  const auto e = math_internal::split_exp(at_least(set(-104), at_most(set(89), x)));
  const auto half = hn::ShiftRight<1>(e.n);  // 2^n itself may be too large or too small
  return hn::Mul(hn::Mul(e.p, math_internal::power_of_two(half)),
                 math_internal::power_of_two(hn::Sub(e.n, half)));
}

// exp x for x <= 88: 1.1 ulp, but 0 where it is below exp(-87) = 1.6e-38.
HWY_INLINE VF exp_small(VF x) {
  const auto e = math_internal::split_exp(at_least(set(-87), x));
  return hn::IfThenZeroElse(hn::Lt(x, set(-87)), hn::Mul(e.p, math_internal::power_of_two(e.n)));
}

// 1 / (1 + exp -x): 2.4 ulp, down to 1e-38.
HWY_INLINE VF sigmoid(VF x) {
  const VF e = exp_small(hn::Neg(hn::Abs(x)));
  const VF top = hn::IfThenElse(hn::Lt(x, zero()), e, set(1));
  return hn::Div(top, hn::Add(set(1), e));
}

// tanh x: 2.2 ulp.
HWY_INLINE VF tanh(VF x) {
  const VF size = hn::Abs(x), q = hn::Mul(x, x);
  VF p = hn::MulAdd(set(0.01875124685f), q, set(-0.05356414658f));
  p = hn::MulAdd(p, q, set(0.1333123467f));
  p = hn::MulAdd(p, q, set(-0.3333329925f));
  const VF small = hn::MulAdd(hn::Mul(p, q), x, x);
  const VF e = exp_small(hn::Mul(set(-2), size));
  const VF large = hn::Div(hn::Sub(set(1), e), hn::Add(set(1), e));
  return hn::IfThenElse(hn::Lt(size, set(0.4f)), small, hn::CopySignToAbs(large, x));
}

// The normal distribution: its density without the factor 1 / sqrt(2 pi), exp(-x^2 / 2), and the
// probability of values below x, (1 + erf(x / sqrt 2)) / 2. The square costs precision in the
// tails: 9 ulp for x of -3, 19 for -6, but never more than 1 ulp of 1.
struct Normal {
  VF density, below;
};
HWY_INLINE Normal normal(VF x) {
  const VF z = hn::Abs(x);
  const VF density = exp_small(hn::Mul(hn::Mul(set(-0.5f), z), z));
  // erfc(s) exp(s^2) / t as a polynomial in t = 1 / (1 + 0.4 s), s = z / sqrt 2
  const VF t = hn::Div(set(1), hn::MulAdd(set(0.282842712f), z, set(1)));
  VF p = hn::MulAdd(set(0.04026740884f), t, set(-0.1354707445f));
  p = hn::MulAdd(p, t, set(0.07384162877f));
  p = hn::MulAdd(p, t, set(0.09972990625f));
  p = hn::MulAdd(p, t, set(0.07150829001f));
  p = hn::MulAdd(p, t, set(0.1969629381f));
  p = hn::MulAdd(p, t, set(0.2009586314f));
  p = hn::MulAdd(p, t, set(0.2265756997f));
  p = hn::MulAdd(p, t, set(0.2256262989f));
  const VF outside = hn::Mul(hn::Mul(set(0.5f), density), hn::Mul(p, t));
  return {density, hn::IfThenElse(hn::Gt(x, zero()), hn::Sub(set(1), outside), outside)};
}

// Of gelu, x (1 + tanh u) / 2: 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3), and its derivative
constexpr float kGeluTwoRoots = 1.5957691216f, kGeluCubic = 0.044715f;
HWY_INLINE VF gelu_twice_u(VF x) {
  return hn::Mul(hn::Mul(set(kGeluTwoRoots), x),
                 hn::MulAdd(hn::Mul(set(kGeluCubic), x), x, set(1)));
}
HWY_INLINE VF gelu_twice_du(VF x) {
  return hn::MulAdd(hn::Mul(set(3 * kGeluCubic * kGeluTwoRoots), x), x, set(kGeluTwoRoots));
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the guard of one instruction set
