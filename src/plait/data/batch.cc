#include "plait/data/batch.h"

#include <cmath>
#include <set>

namespace plait {

BatchLayout batch_layout(const Model& model, int64_t microbatches) {
  const Extent& t = model.extent("T");
  return {microbatches, t.units(), t.unit, wide(model.dtype)};
}

namespace {

void check_sequences(const int32_t* sequences, const Extent& t, size_t microbatch) {
  std::set<int32_t> ended;
  for (int64_t i = 1; i < t.size; ++i) {
    if (sequences[i] == sequences[i - 1]) {
      if (i % t.unit == 0)
        fail(
            "batch: micro-batch {}: sequence {} crosses the border of two slots of {} tokens at "
            "token {}",
            microbatch, sequences[i], t.unit, i);
      continue;
    }
    ended.insert(sequences[i - 1]);
    if (ended.contains(sequences[i]))
      fail("batch: micro-batch {}: sequence {} goes on at token {} after it ended", microbatch,
           sequences[i], i);
  }
}

void check_range(const HostTensor& tensor, const char* name, int64_t limit, size_t microbatch) {
  for (int64_t i = 0; i < tensor.elements(); ++i)
    if (const int32_t id = tensor.as<int32_t>()[i]; id < 0 || id >= limit)
      fail("batch: micro-batch {}: {}[{}] is {}; needs 0 to {}", microbatch, name, i, id,
           limit - 1);
}

}  // namespace

void check_batch(const Batch& batch, const Model& model) {
  const Extent& t = model.extent("T");
  const int64_t vocabulary = model.extent("V").size;
  for (size_t m = 0; m < batch.microbatches.size(); ++m) {
    auto get = [&](const char* name, Dtype dtype) -> const HostTensor& {
      const auto it = batch.microbatches[m].find(name);
      if (it == batch.microbatches[m].end()) fail("batch: micro-batch {} has no '{}'", m, name);
      const HostTensor& tensor = it->second;
      if (tensor.dtype != dtype || tensor.dims != std::vector{t.size})
        fail("batch: micro-batch {}: {} is {}[{}], expected {}[{}]", m, name,
             info(tensor.dtype).name, fmt::join(tensor.dims, ", "), info(dtype).name, t.size);
      return tensor;
    };
    check_range(get("tokens", Dtype::i32), "tokens", vocabulary, m);
    check_range(get("labels", Dtype::i32), "labels", vocabulary, m);
    check_range(get("positions", Dtype::i32), "positions", t.unit, m);
    check_sequences(get("sequences", Dtype::i32).as<int32_t>(), t, m);
    const HostTensor& weights = get("weights", wide(model.dtype));
    for (int64_t i = 0; i < t.size; ++i)
      if (!std::isfinite(weights.at(i)))
        fail("batch: micro-batch {}: weights[{}] is {}", m, i, weights.at(i));
  }
}

}  // namespace plait
