#include "plait/infer/generate.h"

#include <algorithm>
#include <cmath>

#include "plait/base/rng.h"
#include "plait/program/lower.h"

namespace plait {

namespace {

Programs logits_programs(const Model& model) {
  if (model.logits == kNone) fail("model '{}' has no logits to generate from", model.name);
  if (model.extent("T").units() != 1)
    fail("model '{}' has {} slots; generation needs 1", model.name, model.extent("T").units());
  LowerOptions options;
  options.train = false;
  options.threads = share_of_cores(1);
  return lower(model, one_rank_plan(1), options).programs;
}

}  // namespace

int64_t pick_token(const std::vector<double>& logits, double temperature, double draw) {
  for (size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i])) fail("the logit of token {} is {}", i, logits[i]);
  const auto top = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return top - logits.begin();
  std::vector<double> upto;  // cumulative, not normalised
  double sum = 0;
  for (const double logit : logits) upto.push_back(sum += std::exp((logit - *top) / temperature));
  const auto it = std::upper_bound(upto.begin(), upto.end(), draw * sum);
  return std::min<int64_t>(it - upto.begin(), static_cast<int64_t>(logits.size()) - 1);
}

Generator::Generator(const Model& model, const HostTensors& parameters)
    : window_(model.extent("T").size),
      vocabulary_(model.extent("V").size),
      session_(logits_programs(model), {}) {
  set_parameters(parameters);
}

void Generator::set_parameters(const HostTensors& parameters) {
  session_.set_states("param/", parameters);
}

std::vector<double> Generator::next_logits(std::span<const int32_t> ids) {
  if (static_cast<int64_t>(ids.size()) > window_) ids = ids.last(static_cast<size_t>(window_));
  const auto used = static_cast<int64_t>(ids.size());
  HostTensor tokens(Dtype::i32, {window_}), positions = tokens, sequences = tokens;
  for (int64_t i = 0; i < window_; ++i) {
    if (i < used) tokens.as<int32_t>()[i] = ids[static_cast<size_t>(i)];
    sequences.as<int32_t>()[i] =
        i < used ? 0 : 1;  // what is not there yet is a sequence of its own
    positions.as<int32_t>()[i] = static_cast<int32_t>(i < used ? i : i - used);
  }
  Batch batch;
  batch.microbatches.push_back({{"tokens", std::move(tokens)},
                                {"positions", std::move(positions)},
                                {"sequences", std::move(sequences)}});
  session_.step(batch);
  const HostTensors states = session_.gather("logits");
  const HostTensor& logits = states.begin()->second;
  std::vector<double> row;
  for (int64_t v = 0; v < vocabulary_; ++v) row.push_back(logits.at((used - 1) * vocabulary_ + v));
  return row;
}

std::vector<int32_t> Generator::generate(std::span<const int32_t> prompt,
                                         const GenerateOptions& options,
                                         const std::function<bool(int32_t)>& seen) {
  if (prompt.empty()) fail("the prompt is empty; needs a token or more");
  if (options.tokens < 0) fail("{} tokens to generate; needs 0 or more", options.tokens);
  if (!std::isfinite(options.temperature) || options.temperature < 0)
    fail("temperature {}; needs 0 or more", options.temperature);
  for (size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= vocabulary_)
      fail("prompt: token {} at {} is outside the model's vocabulary of {}", prompt[i], i,
           vocabulary_);
  std::vector<int32_t> ids(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < options.tokens; ++i) {
    const double draw = uniform(options.seed, Stream::sampling, static_cast<uint64_t>(i));
    const auto id = static_cast<int32_t>(pick_token(next_logits(ids), options.temperature, draw));
    if (std::find(options.stop.begin(), options.stop.end(), id) != options.stop.end()) break;
    ids.push_back(id);
    if (seen && !seen(id)) break;
  }
  return {ids.begin() + static_cast<int64_t>(prompt.size()), ids.end()};
}

}  // namespace plait
