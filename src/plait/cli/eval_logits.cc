#include "plait/cli/eval_logits.h"

#include <cstring>

#include "plait/io/safetensors.h"

namespace plait {

namespace {

constexpr int64_t kMaxLogitBytes = int64_t{4} << 30;

// The inputs, by their names in the file.
HostTensors inputs_of(const Data& data, int64_t samples) {
  const std::vector<int64_t> dims = {samples, data.slot_tokens()};
  HostTensors all;
  for (const char* name : {"tokens", "positions", "sequences", "labels", "learn"})
    all[name] = HostTensor(Dtype::i32, dims);
  for (int64_t i = 0; i < samples; ++i) {
    const Sample s = data.validation_sample(i);
    const auto put = [&](const char* name, const auto& values) {
      std::copy(values.begin(), values.end(), all.at(name).as<int32_t>() + i * data.slot_tokens());
    };
    put("tokens", s.tokens);
    put("positions", s.positions);
    put("sequences", s.sequences);
    put("labels", s.labels);
    put("learn", s.learn);
  }
  return all;
}

}  // namespace

void write_logits(const std::string& path, const Model& model, Plan plan, int ranks,
                  const HostTensors& parameters, const Data& data, int64_t samples) {
  const std::vector<int64_t> dims = {samples, data.slot_tokens(), model.extent("V").size};
  int64_t bytes = dtype_bytes(model.dtype, 1);
  for (const int64_t d : dims) bytes = checked_mul(bytes, d);
  if (bytes > kMaxLogitBytes)
    fail("the logits of {} slots take {} bytes, at most {} are written; lower --batches", samples,
         bytes, kMaxLogitBytes);
  plan.microbatches = 1;
  LowerOptions options;
  options.train = false;
  options.threads = share_of_cores(plan.mesh.ranks());
  Session session(compile(model, plan, ranks, options).lowered.programs, {});
  session.set_states("param/", parameters);
  const BatchLayout layout = batch_layout(model, 1);
  HostTensor logits(model.dtype, dims);
  const int64_t row = bytes / samples;
  for (int64_t first = 0; first < samples; first += layout.samples()) {
    int64_t labelled = 0;
    session.step(data.validation_batch(layout, first / layout.samples(), labelled));
    const HostTensors states = session.gather("logits");
    const int64_t count = std::min(layout.samples(), samples - first);
    std::memcpy(logits.data.data() + first * row, states.begin()->second.data.data(),
                static_cast<size_t>(count * row));
  }
  HostTensors inputs = inputs_of(data, samples);
  std::vector<std::pair<std::string, const HostTensor*>> tensors;
  for (const auto& [name, tensor] : inputs) tensors.emplace_back(name, &tensor);
  tensors.emplace_back("logits", &logits);
  write_safetensors(path, tensors);
}

}  // namespace plait
