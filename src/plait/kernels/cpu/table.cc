#include <array>

#include "plait/kernels/cpu/kernels.h"

namespace plait {

std::span<const FastKernel> fast_kernels() {
  static constexpr std::array<FastKernel, 3> kernels = {{
      {"matmul", fast_matmul},
      {"attention", fast_attention},
      {"attention_grad", fast_attention_grad},
  }};
  return kernels;
}

}  // namespace plait
