// How many tokens the fused loss (fused_loss.cc) takes at a time: so many that their logits take
// about 48 MB in f32, and at least 64. More tokens mean fewer passes over the gradient of w, fewer
// mean less memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plait/base/dtype.h"

namespace plait {

inline int64_t loss_chunk_tokens(int64_t tokens, int64_t vocabulary) {
  constexpr int64_t kElements = int64_t{12} << 20, kGrain = 12;
  const int64_t most = std::max<int64_t>(64, kElements / std::max<int64_t>(1, vocabulary));
  if (tokens <= most) return std::max<int64_t>(1, tokens);
  const int64_t chunks = (tokens + most - 1) / most;
  return ((tokens + chunks - 1) / chunks + kGrain - 1) / kGrain * kGrain;
}

// Bytes of the logits of one chunk.
inline int64_t loss_chunk_bytes(int64_t tokens, int64_t vocabulary) {
  return (loss_chunk_tokens(tokens, vocabulary) * vocabulary * 4 + 63) / 64 * 64;
}

// Bytes of the gradient of w in f32.
inline int64_t loss_sum_bytes(int64_t vocabulary, int64_t width) {
  return (checked_mul(checked_mul(vocabulary, width), 4) + 63) / 64 * 64;
}

}  // namespace plait
