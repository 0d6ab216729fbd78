// Fast CPU kernels, each beside its op's plain reference (ops/), which the tests hold it against.
#pragma once

#include <span>
#include <string_view>

#include "plait/ir/op.h"

namespace plait {

struct FastKernel {
  std::string_view op;
  Kernel f32 = nullptr;
  Kernel bf16 = nullptr;  // operands that the op's rule calls wide are f32
};

std::span<const FastKernel> fast_kernels();

}  // namespace plait
