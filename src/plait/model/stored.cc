#include "plait/model/stored.h"

#include <cmath>
#include <limits>

#include "plait/base/error.h"
#include "plait/base/text.h"

namespace plait {

namespace {

// The first element that is no finite number, or -1.
template <class T>
int64_t first_bad(const T* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(values[i])) return i;
  return -1;
}

// Of 16-bit types: every bit of the exponent is set.
int64_t first_bad_half(const uint16_t* bits, int64_t n, uint16_t exponent) {
  for (int64_t i = 0; i < n; ++i)
    if ((bits[i] & exponent) == exponent) return i;
  return -1;
}

int64_t first_bad(const HostTensor& t) {
  const int64_t n = t.elements();
  if (t.dtype == Dtype::f16) return first_bad_half(t.as<uint16_t>(), n, 0x7c00);
  if (t.dtype == Dtype::bf16) return first_bad_half(t.as<uint16_t>(), n, 0x7f80);
  return t.dtype == Dtype::f32 ? first_bad(t.as<float>(), n) : first_bad(t.as<double>(), n);
}

double largest(Dtype dtype) {
  if (dtype == Dtype::f16) return 65504;
  if (dtype == Dtype::bf16) return std::ldexp(255.0, 120);
  return static_cast<double>(std::numeric_limits<float>::max());
}

// "[3, 17]" of a row-major index.
std::string place(int64_t index, const std::vector<int64_t>& dims) {
  std::vector<int64_t> at(dims.size());
  for (size_t d = dims.size(); d-- > 0; index /= dims[d]) at[d] = index % dims[d];
  return fmt::format("[{}]", fmt::join(at, ", "));
}

}  // namespace

HostTensor to_stored(HostTensor tensor, Dtype dtype, std::string_view name) {
  if (!info(tensor.dtype).is_float)
    fail("cannot save tensor '{}': element type {}, expected a floating-point one", name,
         info(tensor.dtype).name);
  if (const int64_t i = first_bad(tensor); i >= 0)
    fail(
        "cannot save tensor '{}': element {} is {}, expected a finite number; save an earlier "
        "state, from before the values went astray",
        name, place(i, tensor.dims), number_text(tensor.at(i)));
  if (tensor.dtype == dtype) return tensor;
  HostTensor stored = convert(tensor, dtype);
  if (const int64_t i = first_bad(stored); i >= 0)
    fail(
        "cannot save tensor '{}' as {}: element {} is {}, expected at most {} in magnitude; choose "
        "a wider type to save in (--save-dtype bf16 or f32)",
        name, info(dtype).name, place(i, tensor.dims), number_text(tensor.at(i)),
        number_text(largest(dtype)));
  return stored;
}

}  // namespace plait
