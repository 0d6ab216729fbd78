// Element types, as a table. A type is stored in blocks of `block_elements` elements that take
// `block_bytes` bytes; plain types have one element a block, quantised ones will have more, and
// no shard ever cuts a block.
#pragma once

#include <cstdint>
#include <string_view>

#include "plait/base/error.h"

namespace plait {

// f16 is an element type of files only: it is converted on the way (half.h). bf16 holds activations
// and copies of weights; statistics, sums and what is updated stay f32 beside it (`wide`).
enum class Dtype : uint8_t { f32, f64, i32, bf16, f16 };

struct DtypeInfo {
  std::string_view name;              // in plait's own text formats
  std::string_view safetensors_name;  // in safetensors headers
  int64_t block_elements;
  int64_t block_bytes;
  bool is_float;
  bool stored_only;  // in files, never computed with
};

const DtypeInfo& info(Dtype dtype);
// Types to compute with, by plait's own names; throws Error naming the known ones.
Dtype parse_dtype(std::string_view name);
// Types of files too, by plait's own names.
Dtype parse_stored_dtype(std::string_view name);
bool is_computed_float(Dtype dtype);  // f32, f64 and bf16
inline bool is_half(Dtype dtype) { return dtype == Dtype::bf16 || dtype == Dtype::f16; }
// The type of sums and statistics where tensors are of this one: f32 for bf16, else itself.
inline Dtype wide(Dtype dtype) { return dtype == Dtype::bf16 ? Dtype::f32 : dtype; }

// Bytes of `elements` elements; throws on overflow, on negative counts and on a cut block.
int64_t dtype_bytes(Dtype dtype, int64_t elements);

// Calls f.template operator()<float>() or <double>(); throws for integers and for types that are
// only stored.
template <class F>
decltype(auto) dispatch_float(Dtype dtype, F&& f) {
  if (dtype == Dtype::f32) return f.template operator()<float>();
  if (dtype == Dtype::f64) return f.template operator()<double>();
  if (dtype == Dtype::bf16 || info(dtype).stored_only)
    fail("element type {} has no arithmetic of its own; convert to f32 or f64", info(dtype).name);
  fail("element type {} where a floating-point one is needed", info(dtype).name);
}

// Checked arithmetic for every number that comes from outside.
int64_t checked_mul(int64_t a, int64_t b);
int64_t checked_add(int64_t a, int64_t b);

}  // namespace plait
