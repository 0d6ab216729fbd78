#include "plait/base/dtype.h"

#include <array>

namespace plait {

namespace {
constexpr std::array<DtypeInfo, 5> kTable = {{
    {"f32", "F32", 1, 4, true, false},
    {"f64", "F64", 1, 8, true, false},
    {"i32", "I32", 1, 4, false, false},
    {"bf16", "BF16", 1, 2, true, false},
    {"f16", "F16", 1, 2, true, true},
}};

const DtypeInfo* find(std::string_view name) {
  for (const DtypeInfo& t : kTable)
    if (t.name == name) return &t;
  return nullptr;
}
}  // namespace

const DtypeInfo& info(Dtype dtype) { return kTable.at(static_cast<size_t>(dtype)); }

Dtype parse_dtype(std::string_view name) {
  const DtypeInfo* found = find(name);
  if (found != nullptr && found->stored_only)
    fail("element type {} is for files only; compute in f32, f64 or bf16", name);
  if (found != nullptr) return static_cast<Dtype>(found - kTable.data());
  fail("unknown element type '{}'; known are f32, f64, bf16, i32", name);
}

Dtype parse_stored_dtype(std::string_view name) {
  const DtypeInfo* found = find(name);
  if (found != nullptr) return static_cast<Dtype>(found - kTable.data());
  fail("unknown element type '{}'; known are f32, f64, i32, bf16, f16", name);
}

bool is_computed_float(Dtype dtype) { return info(dtype).is_float && !info(dtype).stored_only; }

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
