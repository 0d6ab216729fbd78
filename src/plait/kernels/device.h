// Device: the table behind which memory and kernels lie. A second device is a second table.
#pragma once

#include <cstddef>

#include "plait/ir/op.h"

namespace plait {

struct Device {
  const char* name;
  std::byte* (*allocate)(int64_t bytes);  // 64-byte aligned; throws Error when there is no memory
  void (*release)(std::byte* memory);
  void (*copy)(std::byte* to, const std::byte* from, int64_t bytes);
  // The fastest kernel for an op, or its plain reference. Same arguments, same workspace.
  Kernel (*kernel)(const OpDef& op, Dtype dtype);
  // Compute threads of the calling rank, for kernels that use several.
  void (*set_threads)(int threads);
};

const Device& cpu_device();

}  // namespace plait
