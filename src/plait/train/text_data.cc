#include "plait/train/text_data.h"

#include <cmath>
#include <set>

#include "plait/base/rng.h"
#include "plait/io/files.h"

namespace plait {

namespace {
constexpr int64_t kMaxTextBytes = int64_t{1} << 33;
constexpr int64_t kUnused = -1;  // start of a slot without a sample
}  // namespace

BatchLayout batch_layout(const Model& model, int64_t microbatches) {
  const Extent& t = model.extent("T");
  return {microbatches, t.units(), t.unit, model.dtype};
}

TextData::TextData(std::string bytes, int64_t vocabulary, int64_t slot_tokens,
                   const std::string& source)
    : bytes_(std::move(bytes)), slot_tokens_(slot_tokens) {
  const auto size = static_cast<int64_t>(bytes_.size());
  const int64_t sample = slot_tokens + 1;
  if (size == 0) fail("text '{}' is empty", source);
  if (size < 2 * sample)
    fail("text '{}' has {} bytes; needs {}: a training and a validation sample of {} tokens each",
         source, size, 2 * sample, slot_tokens);
  training_bytes_ = size - std::max(size / 20, sample);
  for (int64_t i = 0; i < size; ++i)
    if (const int id = static_cast<unsigned char>(bytes_[static_cast<size_t>(i)]); id >= vocabulary)
      fail(
          "text '{}': byte {} at offset {} is outside the model's vocabulary of {}; a model with "
          "256 entries takes any text",
          source, id, i, vocabulary);
}

int64_t TextData::sample_start(uint64_t seed, int64_t step, int64_t sample, int64_t samples) const {
  const auto index = static_cast<uint64_t>(step * samples + sample);
  const auto starts = static_cast<uint64_t>(training_bytes_ - slot_tokens_);
  return static_cast<int64_t>(random_bits(seed, Stream::data_order, index) % starts);
}

Batch TextData::batch(const BatchLayout& layout, const std::vector<int64_t>& starts,
                      double weight) const {
  PLAIT_CHECK(layout.slot_tokens == slot_tokens_, "slots of {} tokens for data in slots of {}",
              layout.slot_tokens, slot_tokens_);
  Batch batch;
  const std::vector<int64_t> dims{layout.slots * slot_tokens_};
  for (int64_t m = 0; m < layout.microbatches; ++m) {
    HostTensor tokens(Dtype::i32, dims), positions = tokens, sequences = tokens, labels = tokens;
    HostTensor weights(layout.dtype, dims);
    for (int64_t s = 0; s < layout.slots; ++s) {
      const int64_t start = starts[static_cast<size_t>(m * layout.slots + s)];
      for (int64_t i = 0; i < slot_tokens_; ++i) {
        const int64_t at = s * slot_tokens_ + i;
        positions.as<int32_t>()[at] = static_cast<int32_t>(i);
        sequences.as<int32_t>()[at] = static_cast<int32_t>(s);
        if (start == kUnused) continue;
        const auto* byte = reinterpret_cast<const unsigned char*>(bytes_.data()) + start + i;
        tokens.as<int32_t>()[at] = byte[0];
        labels.as<int32_t>()[at] = byte[1];
        dispatch_float(layout.dtype,
                       [&]<class T>() { weights.as<T>()[at] = static_cast<T>(weight); });
      }
    }
    batch.microbatches.push_back({{"tokens", std::move(tokens)},
                                  {"positions", std::move(positions)},
                                  {"sequences", std::move(sequences)},
                                  {"labels", std::move(labels)},
                                  {"weights", std::move(weights)}});
  }
  return batch;
}

Batch TextData::training_batch(const BatchLayout& layout, uint64_t seed, int64_t step) const {
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < layout.samples(); ++i)
    starts.push_back(sample_start(seed, step, i, layout.samples()));
  return batch(layout, starts, 1.0 / static_cast<double>(layout.tokens()));
}

int64_t TextData::validation_samples() const {
  return (static_cast<int64_t>(validation().size()) - 1) / slot_tokens_;
}

int64_t TextData::validation_batches(const BatchLayout& layout) const {
  return (validation_samples() + layout.samples() - 1) / layout.samples();
}

int64_t TextData::validation_labels(const BatchLayout& layout, int64_t batches) const {
  return std::min(validation_samples(), batches * layout.samples()) * slot_tokens_;
}

Batch TextData::validation_batch(const BatchLayout& layout, int64_t index,
                                 int64_t& labelled) const {
  std::vector<int64_t> starts;
  int64_t used = 0;
  for (int64_t i = index * layout.samples(); i < (index + 1) * layout.samples(); ++i) {
    const bool there = i < validation_samples();
    starts.push_back(there ? training_bytes_ + i * slot_tokens_ : kUnused);
    used += there ? 1 : 0;
  }
  PLAIT_CHECK(used > 0, "validation batch {} of {}", index, validation_batches(layout));
  labelled = used * slot_tokens_;
  return batch(layout, starts, 1.0 / static_cast<double>(labelled));
}

TextData load_text_data(const std::string& path, int64_t vocabulary, int64_t slot_tokens) {
  if (!file_exists(path)) fail("text '{}' does not exist", path);
  return TextData(read_text(path, kMaxTextBytes), vocabulary, slot_tokens, path);
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
    const HostTensor& weights = get("weights", model.dtype);
    for (int64_t i = 0; i < t.size; ++i)
      if (!std::isfinite(weights.at(i)))
        fail("batch: micro-batch {}: weights[{}] is {}", m, i, weights.at(i));
  }
}

}  // namespace plait
