// Element types, as a table. A type is stored in blocks of `block_elements` elements that take
// `block_bytes` bytes; plain types have one element a block, quantised ones will have more, and
// no shard ever cuts a block.
#pragma once

#include <cstdint>
#include <string_view>

#include "plait/base/error.h"

namespace plait {

enum class Dtype : uint8_t { f32, f64, i32 };

struct DtypeInfo {
  std::string_view name;              // in plait's own text formats
  std::string_view safetensors_name;  // in safetensors headers
  int64_t block_elements;
  int64_t block_bytes;
  bool is_float;
};

const DtypeInfo& info(Dtype dtype);
Dtype parse_dtype(std::string_view name);  // throws Error naming the known types

// Bytes of `elements` elements; throws on overflow, on negative counts and on a cut block.
int64_t dtype_bytes(Dtype dtype, int64_t elements);

// Calls f.template operator()<float>() or <double>(); throws for integers.
template <class F>
decltype(auto) dispatch_float(Dtype dtype, F&& f) {
  if (dtype == Dtype::f32) return f.template operator()<float>();
  if (dtype == Dtype::f64) return f.template operator()<double>();
  fail("element type {} where a floating-point one is needed", info(dtype).name);
}

// Checked arithmetic for every number that comes from outside.
int64_t checked_mul(int64_t a, int64_t b);
int64_t checked_add(int64_t a, int64_t b);

}  // namespace plait
