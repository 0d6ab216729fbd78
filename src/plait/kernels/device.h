// Device: the table behind which memory and kernels lie. A second device is a second table.
#pragma once

#include <cstddef>

#include "plait/ir/op.h"

namespace plait {

// The compute threads of one rank. They are pinned to consecutive cores of those the process may
// use; with more threads than cores they are not, and idle ones sleep.
struct Team {
  int threads = 1;
  int first_core = -1;  // negative: not pinned
};

struct Device {
  const char* name;
  std::byte* (*allocate)(int64_t bytes);  // 64-byte aligned; throws Error when there is no memory
  void (*release)(std::byte* memory);
  void (*copy)(std::byte* to, const std::byte* from, int64_t bytes);
  // The fastest kernel for an op, or its plain reference. Same arguments, same workspace. The type
  // is bf16 if any operand or result is, else that of the results.
  Kernel (*kernel)(const OpDef& op, Dtype dtype);
  // Makes the calling thread the first of a rank's team of compute threads.
  void (*start_team)(const Team& team);
};

const Device& cpu_device();

}  // namespace plait
