// attention and its gradient against their plain references.
#include <gtest/gtest.h>

#include "hold.h"

namespace plait {
namespace {

// Packed sequences of every kind: whole slots, single tokens, several in a slot.
std::vector<double> packed(const std::vector<int>& lengths) {
  std::vector<double> ids;
  for (size_t s = 0; s < lengths.size(); ++s)
    ids.insert(ids.end(), static_cast<size_t>(lengths[s]), static_cast<double>(s));
  return ids;
}

// Attention and its gradient on these heads, the gradient on consistent o and lse: those of the
// reference on the same draws. The query heads `first` to `first + here` are this rank's; all of
// the key/value heads are.
void hold_attention(const std::vector<int>& lengths, int64_t heads, int64_t kv, Attrs attrs,
                    int64_t first, int64_t here) {
  const Extent t{"T", 48, 24}, h{"H", here * 8, 8}, g{"G", kv * 8, 8}, n{"", here, 1};
  const TensorType q{Dtype::f32, {t, h}}, k{Dtype::f32, {t, g}}, ids{Dtype::i32, {t}};
  attrs["head_size"] = 8;
  const KernelPlace place{1, first * 8, heads * 8};
  KernelCall forward{
      find_op("attention"), attrs, {q, k, k, ids}, {{}, {}, {}, packed(lengths)}, place};
  hold(forward);
  const KernelCall drawn = with_values(forward, Dtype::f32);
  const auto out = run_kernel(drawn, drawn.op.reference.f64, {Dtype::f64});
  hold({find_op("attention_grad"),
        attrs,
        {q, k, k, ids, q, {Dtype::f32, {t, n}}, q},
        {drawn.values[0], drawn.values[1], drawn.values[2], packed(lengths), out[0], out[1], {}},
        place});
}

TEST(CpuKernels, AttentionPackedAndGrouped) {
  for (const auto& lengths : {std::vector<int>{24, 24}, {1, 23, 7, 17}, {24, 1, 1, 1, 21}})
    for (const auto& [heads, kv] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 4}, {4, 2}, {6, 1}})
      hold_attention(lengths, heads, kv, {}, 0, heads);
}

TEST(CpuKernels, AttentionWithWindowCapAndScale) {
  // A window of one token leaves nothing to compare: all gradients of q and k are 0.
  for (const int window : {0, 2, 5, 24, 100})
    for (const double cap : {0.0, 0.4})
      hold_attention({24, 3, 21}, 4, 2, {{"window", window}, {"soft_cap", cap}, {"scale", 0.6}}, 0,
                     4);
}

// A rank that holds some query heads and all key/value heads, or none at all.
TEST(CpuKernels, AttentionOfSomeQueryHeads) {
  for (const auto& [first, here] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 2}, {3, 3}, {5, 1}, {6, 0}})
    hold_attention({24, 7, 17}, 6, 3, {{"window", 6}}, first, here);
}

}  // namespace
}  // namespace plait
