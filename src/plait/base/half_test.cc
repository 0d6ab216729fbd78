#include "plait/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "plait/base/host_tensor.h"
#include "plait/base/rng.h"

namespace plait {
namespace {

// Sizes of a 16-bit format; its values are computed from their definition, in f64, exactly.
struct Format {
  int exponent_bits, mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double value(uint16_t bits) const {
    const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1)
      return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
    const double fraction = std::ldexp(mantissa, -mantissa_bits) + (exponent > 0 ? 1 : 0);
    return sign * std::ldexp(fraction, std::max(exponent, 1) - bias());
  }
};
constexpr Format kBf16{8, 7}, kF16{5, 10};

template <class F>
void for_all_bits(F f) {
  for (uint32_t b = 0; b <= 0xffff; ++b) f(static_cast<uint16_t>(b));
}

TEST(Half, EveryPatternHasItsValueAndComesBack) {
  for_all_bits([](uint16_t b) {
    for (const bool bf16 : {true, false}) {
      const double expected = (bf16 ? kBf16 : kF16).value(b);
      const float narrow = bf16 ? bf16_value(b) : f16_value(b);
      const double wide = bf16 ? bf16_value_f64(b) : f16_value_f64(b);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(narrow) && std::isnan(wide)) << b;
      } else {
        ASSERT_EQ(static_cast<double>(narrow), expected) << b;
        ASSERT_EQ(wide, expected) << b;
        ASSERT_EQ(std::signbit(wide), (b & 0x8000) != 0) << b;
      }
      ASSERT_EQ(bf16 ? bf16_bits(narrow) : f16_bits(narrow), b);  // payloads of NaN too
      ASSERT_EQ(bf16 ? bf16_bits(wide) : f16_bits(wide), b);
    }
  });
}

// What rounding must give, from the definition: the nearer neighbour, the even one of two.
void check_between(const Format& f, uint16_t low, bool bf16) {
  const auto high = static_cast<uint16_t>(low + 1);
  const double a = f.value(low);
  // An infinity stands where the next number would, had the format one more exponent.
  const double b = std::isinf(f.value(high)) ? std::ldexp(1.0, f.bias() + 1) : f.value(high);
  const double middle = (a + b) / 2;  // exact: both have few bits
  const uint16_t even = (low & 1) == 0 ? low : high;
  const auto round = [&](double x) { return bf16 ? bf16_bits(x) : f16_bits(x); };
  for (const int sign : {0, 0x8000}) {
    const double s = sign == 0 ? 1 : -1;
    ASSERT_EQ(round(s * middle), even | sign) << low;
    ASSERT_EQ(round(s * std::nextafter(middle, a)), low | sign) << low;
    ASSERT_EQ(round(s * std::nextafter(middle, b)), high | sign) << low;
    // In f32 too, where its own neighbours of the middle lie between a and b.
    const auto m = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(m), middle);
    const auto round32 = [&](float x) { return bf16 ? bf16_bits(x) : f16_bits(x); };
    const auto s32 = static_cast<float>(s);
    ASSERT_EQ(round32(s32 * m), even | sign) << low;
    ASSERT_EQ(round32(s32 * std::nextafter(m, 0.0F)), low | sign) << low;
    const float up = std::nextafter(m, std::numeric_limits<float>::infinity());
    ASSERT_EQ(round32(s32 * up), high | sign) << low;
  }
}

TEST(Half, RoundsToNearestAndTiesToEven) {
  // Every pair of neighbours: subnormal, normal, and the last one before infinity.
  for (uint32_t b = 0; b < 0x7c00; ++b) check_between(kF16, static_cast<uint16_t>(b), false);
  for (uint32_t b = 0; b < 0x7f80; ++b) check_between(kBf16, static_cast<uint16_t>(b), true);
}

TEST(Half, RoundsOnce) {
  // Just above the middle of 1 and the next bf16: f32 takes it for the middle, and even is 1.
  const double x = 1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40);
  EXPECT_EQ(bf16_bits(static_cast<float>(x)), 0x3f80);
  EXPECT_EQ(bf16_bits(x), 0x3f81);
  const double y = 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  EXPECT_EQ(f16_bits(static_cast<float>(y)), 0x3c00);
  EXPECT_EQ(f16_bits(y), 0x3c01);
}

TEST(Half, ExtremesOfWiderTypes) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double x : {1e300, inf, static_cast<double>(std::numeric_limits<float>::max())}) {
    EXPECT_EQ(bf16_bits(x), 0x7f80);
    EXPECT_EQ(bf16_bits(-x), 0xff80);
    EXPECT_EQ(f16_bits(x), 0x7c00);
    EXPECT_EQ(f16_bits(-x), 0xfc00);
  }
  for (const double x : {1e-300, 5e-324, 0.0}) {
    EXPECT_EQ(bf16_bits(x), 0);
    EXPECT_EQ(bf16_bits(-x), 0x8000);
    EXPECT_EQ(f16_bits(x), 0);
    EXPECT_EQ(f16_bits(-x), 0x8000);
  }
  EXPECT_EQ(f16_bits(65519.0), 0x7bff);
  EXPECT_EQ(f16_bits(65520.0), 0x7c00);
  // A NaN whose payload lies in the bits that go stays a NaN.
  EXPECT_EQ(bf16_bits(std::bit_cast<float>(0x7f800001U)), 0x7fc0);
  EXPECT_EQ(f16_bits(std::bit_cast<float>(0xff800001U)), 0xfe00);
  EXPECT_EQ(bf16_bits(std::bit_cast<double>(0x7ff0000000000001U)), 0x7fc0);
}

TEST(Half, TensorsConvertBetweenAllTypes) {
  HostTensor all(Dtype::bf16, {256, 256});
  for_all_bits([&](uint16_t b) { all.as<uint16_t>()[b] = b; });
  for (const Dtype half : {Dtype::bf16, Dtype::f16}) {
    all.dtype = half;
    for (const Dtype wide : {Dtype::f32, Dtype::f64}) {
      const HostTensor w = convert(all, wide);
      EXPECT_EQ(w.dtype, wide);
      EXPECT_EQ(convert(w, half), all);
      EXPECT_EQ(w.at(0x3c00), all.at(0x3c00));
    }
  }
  const HostTensor one = convert(all, Dtype::bf16);  // f16 to bf16
  EXPECT_EQ(one.as<uint16_t>()[0x3c01], 0x3f80);     // 1 + 2^-10 is nearer to 1 than to 1 + 2^-7
  EXPECT_THROW(convert(all, Dtype::i32), Error);
  EXPECT_THROW(convert(HostTensor(Dtype::i32, {1}), Dtype::f16), Error);
}

TEST(Half, OnlyBf16IsComputedWith) {
  for (const Dtype half : {Dtype::bf16, Dtype::f16}) {
    EXPECT_EQ(is_computed_float(half), half == Dtype::bf16);
    EXPECT_THROW(dispatch_float(half, []<class T>() {}), Error);  // C++ has no such type
    EXPECT_EQ(parse_stored_dtype(info(half).name), half);
  }
  EXPECT_EQ(parse_dtype("bf16"), Dtype::bf16);
  EXPECT_THROW(parse_dtype("f16"), Error);
}

}  // namespace
}  // namespace plait
