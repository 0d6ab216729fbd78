// TextData: a text file as training data, one token per byte. The last 5 % of the file (at least
// one sample) are held out for validation.
//
//   const TextData data = load_text_data("kjv.txt", 256, 128);   // vocabulary, slot_tokens
//   const BatchLayout layout = batch_layout(model, plan.microbatches);
//   Batch batch = data.training_batch(layout, seed, step);       // add step["hyper"] before use
//
// A sample is slot_tokens + 1 bytes: slot_tokens inputs, and for each the byte after it as label.
// Where a training sample starts is a function of (seed, step, sample) alone, never of the ranks
// or of how samples lie in micro-batches. Validation samples lie side by side, in order.
#pragma once

#include <string>
#include <string_view>

#include "plait/exec/session.h"
#include "plait/model/model.h"

namespace plait {

// How the samples of a step lie: `microbatches` x `slots` of them, each in its own slot.
struct BatchLayout {
  int64_t microbatches = 1, slots = 1, slot_tokens = 0;
  Dtype dtype = Dtype::f32;  // of the weights
  int64_t samples() const { return microbatches * slots; }
  int64_t tokens() const { return samples() * slot_tokens; }
};
BatchLayout batch_layout(const Model& model, int64_t microbatches);

class TextData {
 public:
  // Throws Error when a byte is outside the vocabulary, and when a part is shorter than a sample.
  TextData(std::string bytes, int64_t vocabulary, int64_t slot_tokens, const std::string& source);

  std::string_view training() const { return std::string_view(bytes_).substr(0, training_bytes_); }
  std::string_view validation() const { return std::string_view(bytes_).substr(training_bytes_); }

  // First byte of a training sample; `sample` counts over the whole step, from 0.
  int64_t sample_start(uint64_t seed, int64_t step, int64_t sample, int64_t samples) const;
  // Steps count from 0 here. Weights are 1 / (tokens of the step), so the loss is a mean.
  Batch training_batch(const BatchLayout& layout, uint64_t seed, int64_t step) const;

  int64_t validation_samples() const;
  int64_t validation_batches(const BatchLayout& layout) const;
  // In the last batch, slots without a sample have weight 0. `labelled`: how many tokens count.
  Batch validation_batch(const BatchLayout& layout, int64_t index, int64_t& labelled) const;
  // What `batches` validation batches predict: bytes [1, 1 + this) of validation().
  int64_t validation_labels(const BatchLayout& layout, int64_t batches) const;

 private:
  Batch batch(const BatchLayout& layout, const std::vector<int64_t>& starts, double weight) const;
  std::string bytes_;
  int64_t training_bytes_ = 0;
  int64_t slot_tokens_ = 0;
};

TextData load_text_data(const std::string& path, int64_t vocabulary, int64_t slot_tokens);

// Throws Error unless the batch fits the model: every tensor there with T elements, ids in range,
// weights finite, and every sequence one run of tokens inside one unit of T.
void check_batch(const Batch& batch, const Model& model);

}  // namespace plait
