#include "plait/base/dtype.h"

#include <array>

namespace plait {

namespace {
constexpr std::array<DtypeInfo, 3> kTable = {{
    {"f32", "F32", 1, 4, true},
    {"f64", "F64", 1, 8, true},
    {"i32", "I32", 1, 4, false},
}};
}  // namespace

const DtypeInfo& info(Dtype dtype) { return kTable.at(static_cast<size_t>(dtype)); }

Dtype parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kTable.size(); ++i)
    if (kTable[i].name == name) return static_cast<Dtype>(i);
  fail("unknown element type '{}'; known are f32, f64, i32", name);
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) fail("{} x {} does not fit 64 bits", a, b);
  return r;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) fail("{} + {} does not fit 64 bits", a, b);
  return r;
}

int64_t dtype_bytes(Dtype dtype, int64_t elements) {
  const DtypeInfo& t = info(dtype);
  if (elements < 0 || elements % t.block_elements != 0)
    fail("{} elements of {}; needs a multiple of {}", elements, t.name, t.block_elements);
  return checked_mul(elements / t.block_elements, t.block_bytes);
}

}  // namespace plait
