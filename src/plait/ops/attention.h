// How the fast kernels of attention cut a sequence into blocks, and the scratch that they need for
// it; `workspace` of the ops answers with it, the kernels divide it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace plait {

inline constexpr int64_t kAttentionColumns = 32;  // widest panel of any instruction set
inline constexpr int64_t kAttentionSub = 64;      // queries that the gradient treats at a time
inline constexpr int64_t kAttentionStride = kAttentionSub + 16;  // of its scores; odd cache lines

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Queries, and keys, of a block at most: multiples of 48 such that a thread's scratch stays in its
// second-level cache.
constexpr int64_t attention_block(int64_t head_size) {
  return head_size <= 128 ? 192 : head_size <= 256 ? 96 : 48;
}
constexpr int64_t attention_grad_block(int64_t head_size) {
  return head_size <= 80 ? 192 : head_size <= 160 ? 96 : 48;
}

// Blocks of one sequence have one size, the last may be shorter: evenly cut, in whole cache lines.
constexpr int64_t even_block(int64_t length, int64_t most) {
  const int64_t blocks = std::max<int64_t>(1, (length + most - 1) / most);
  return std::max<int64_t>(16, round_up((length + blocks - 1) / blocks, 16));
}

// Bytes for each thread: keys, values, queries and results of a block in f32, scores of a panel.
constexpr int64_t attention_thread_bytes(int64_t head_size) {
  const int64_t block = round_up(attention_block(head_size), kAttentionColumns);
  const int64_t row = head_size + round_up(head_size, kAttentionColumns);
  return 4 * (block * (2 * row + kAttentionColumns + 2) + kAttentionColumns) + 64 * 16;
}
constexpr int64_t attention_grad_thread_bytes(int64_t head_size) {
  const int64_t block = round_up(attention_grad_block(head_size), kAttentionColumns);
  const int64_t row = head_size + round_up(head_size, kAttentionColumns);
  return 4 * block * (4 * row + 2 * kAttentionStride + 2) + 64 * 16;
}

// Gradients of 16-bit tensors are summed in f32 for so many key/value heads at a time: one for
// each thread, and more of short inputs.
constexpr int64_t attention_grad_heads(int64_t tokens, int64_t kv_heads, int threads) {
  const int64_t few = 4096 / std::max<int64_t>(1, tokens) + 1;
  return std::min(kv_heads, std::max<int64_t>(threads, few));
}

}  // namespace plait
