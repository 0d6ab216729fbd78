#include "plait/base/half.h"

#include <bit>
#include <cmath>
#include <limits>

namespace plait {

namespace {

constexpr uint32_t kSign = 0x80000000U, kInfinity = 0x7f800000U;

// Bits of a NaN as float: processors make signalling NaNs quiet when they convert; this does not.
uint32_t narrowed_nan(uint64_t bits) {
  const auto sign = static_cast<uint32_t>(bits >> 32) & kSign;
  const auto payload = static_cast<uint32_t>(bits >> 29) & 0x7fffffU;
  return sign | kInfinity | (payload == 0 ? 0x400000U : payload);
}

// The float nearest to zero of the two around `value`, with its last bit set unless it is exact
// (rounding to odd): rounding that to a type at least two bits shorter gives what rounding the
// double itself gives.
uint32_t rounded_to_odd(double value) {
  if (std::isnan(value)) return narrowed_nan(std::bit_cast<uint64_t>(value));
  const auto nearest = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const double back = static_cast<double>(nearest);
  if (back == value) return bits;
  if (std::fabs(back) > std::fabs(value)) --bits;  // infinity becomes the largest number
  return bits | 1U;
}

uint16_t bf16_of(uint32_t bits) {
  const uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) {
    const uint32_t top = bits >> 16;
    return static_cast<uint16_t>((top & 0x7fU) == 0 ? top | 0x40U : top);
  }
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

uint16_t f16_of(uint32_t bits) {
  const auto sign = static_cast<uint16_t>((bits & kSign) >> 16);
  const uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) {
    const uint32_t payload = (magnitude & 0x7fffffU) >> 13;
    return static_cast<uint16_t>(sign | 0x7c00U | (payload == 0 ? 0x200U : payload));
  }
  const auto exponent = static_cast<int>(magnitude >> 23) - 127 + 15;
  if (exponent >= 31) return static_cast<uint16_t>(sign | 0x7c00U);
  if (exponent < -10) return sign;  // below half of the least subnormal number
  uint32_t mantissa = magnitude & 0x7fffffU, drop = 13;
  uint32_t kept = 0;
  if (exponent > 0) {
    kept = static_cast<uint32_t>(exponent) << 10;
  } else {  // subnormal: the leading 1 becomes a bit of the mantissa
    mantissa |= 0x800000U;
    drop = static_cast<uint32_t>(14 - exponent);
  }
  kept += mantissa >> drop;
  const uint32_t rest = mantissa & ((1U << drop) - 1), half = 1U << (drop - 1);
  if (rest > half || (rest == half && (kept & 1U) != 0)) ++kept;  // may carry into the exponent
  return static_cast<uint16_t>(sign | kept);
}

uint32_t f16_widened(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 31) return sign | kInfinity | (mantissa << 13);
  if (exponent > 0) return sign | ((exponent + 127 - 15) << 23) | (mantissa << 13);
  if (mantissa == 0) return sign;
  const int shift = std::countl_zero(mantissa) - 21;  // moves the leading 1 to bit 10
  mantissa = (mantissa << shift) & 0x3ffU;
  return sign | (static_cast<uint32_t>(127 - 14 - shift) << 23) | (mantissa << 13);
}

double widened(uint32_t bits) {
  if ((bits & ~kSign) <= kInfinity) return static_cast<double>(std::bit_cast<float>(bits));
  const uint64_t sign = static_cast<uint64_t>(bits & kSign) << 32;
  return std::bit_cast<double>(sign | 0x7ff0000000000000U |
                               (static_cast<uint64_t>(bits & 0x7fffffU) << 29));
}

}  // namespace

float bf16_value(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
float f16_value(uint16_t bits) { return std::bit_cast<float>(f16_widened(bits)); }
double bf16_value_f64(uint16_t bits) { return widened(static_cast<uint32_t>(bits) << 16); }
double f16_value_f64(uint16_t bits) { return widened(f16_widened(bits)); }

uint16_t bf16_bits(float value) { return bf16_of(std::bit_cast<uint32_t>(value)); }
uint16_t f16_bits(float value) { return f16_of(std::bit_cast<uint32_t>(value)); }
uint16_t bf16_bits(double value) { return bf16_of(rounded_to_odd(value)); }
uint16_t f16_bits(double value) { return f16_of(rounded_to_odd(value)); }

}  // namespace plait
