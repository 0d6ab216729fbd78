// The 16-bit floating-point types: bf16 (8 bits of exponent, 7 of mantissa) and f16
// (IEEE 754 binary16: 5 and 10). A value is widened exactly when it is read, and rounded once, to
// nearest and ties to even, when it is written; nothing is computed in them.
//
//   bf16_bits(1.0) == 0x3f80;  f16_value(0x7bff) == 65504.0F
//
// Every bit pattern, NaN payloads too, survives widening and rounding back. A NaN whose payload
// does not fit stays a NaN. What is too large becomes an infinity.
#pragma once

#include <cstdint>
#include <utility>

#include "plait/base/dtype.h"

namespace plait {

float bf16_value(uint16_t bits);
float f16_value(uint16_t bits);
double bf16_value_f64(uint16_t bits);
double f16_value_f64(uint16_t bits);

uint16_t bf16_bits(float value);
uint16_t f16_bits(float value);
uint16_t bf16_bits(double value);  // rounded once, not by way of float
uint16_t f16_bits(double value);

// An element of bf16: arithmetic is done in float, and each result rounded once.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) : bits(bf16_bits(value)) {}
  explicit BFloat16(double value) : bits(bf16_bits(value)) {}
  operator float() const { return bf16_value(bits); }  // NOLINT: widening is exact
};

// dispatch_float, with BFloat16 for bf16.
template <class F>
decltype(auto) dispatch_computed(Dtype dtype, F&& f) {
  if (dtype == Dtype::bf16) return f.template operator()<BFloat16>();
  return dispatch_float(dtype, std::forward<F>(f));
}

}  // namespace plait
