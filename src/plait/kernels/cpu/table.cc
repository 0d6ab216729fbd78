#include <array>

#include "plait/kernels/cpu/kernels.h"

namespace plait {

std::span<const FastKernel> fast_kernels() {
  static constexpr std::array<FastKernel, 4> kernels = {{
      {"matmul", fast_matmul, fast_matmul},
      {"attention", fast_attention, fast_attention_bf16},
      {"attention_grad", fast_attention_grad, fast_attention_grad_bf16},
      {"orthogonalize", fast_orthogonalize},
  }};
  return kernels;
}

}  // namespace plait
