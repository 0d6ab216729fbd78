#include "faults.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "draw.h"
#include "plait/model/lora.h"

namespace plait {

namespace {

constexpr int64_t kSlot = 24, kSamples = 8, kVocabulary = 67;
constexpr int64_t kLengths[kSamples] = {24, 3, 17, 24, 9, 1, 20, 24};

nlohmann::json base() {
  return {
      {"model_type", "llama"},  {"vocab_size", kVocabulary},     {"hidden_size", 32},
      {"num_hidden_layers", 4}, {"num_attention_heads", 4},      {"num_key_value_heads", 2},
      {"head_dim", 8},          {"intermediate_size", 88},       {"rms_norm_eps", 1e-5},
      {"rope_theta", 10000.0},  {"max_position_embeddings", 64}, {"tie_word_embeddings", false}};
}

std::string with(const std::string& key, const nlohmann::json& value) {
  nlohmann::json config = base();
  config[key] = value;
  return config.dump();
}

// Whether the token's label counts: real, not the last of its sample, not masked.
bool counts(const FaultBatch& options, Draw& d, int64_t sample, int64_t at) {
  const bool drawn = d.chance(80);
  const auto& masked = options.masked_samples;
  return drawn && at + 1 < kLengths[sample] &&
         std::find(masked.begin(), masked.end(), sample) == masked.end();
}

void set_weights(const FaultBatch& options, std::vector<double>& weights) {
  double all = 0;
  int64_t samples = 0;
  std::vector<double> of_sample(kSamples, 0);
  for (size_t i = 0; i < weights.size(); ++i) of_sample[i / kSlot] += weights[i];
  for (double n : of_sample) {
    all += n;
    samples += n > 0 ? 1 : 0;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    weights[i] = options.mean == Mean::tokens
                     ? 1 / all
                     : 1 / of_sample[i / kSlot] / static_cast<double>(samples);
  }
}

}  // namespace

std::string d4() { return base().dump(); }
std::string d4_tied() { return with("tie_word_embeddings", true); }
std::string d4_one_kv_head() { return with("num_key_value_heads", 1); }
std::string d4_qk_norm() { return with("model_type", "qwen3"); }

Batch fault_batch(const FaultBatch& options) {
  const int64_t tokens = kSamples * kSlot, part = tokens / options.microbatches;
  PLAIT_CHECK(kSamples % options.microbatches == 0, "samples are dealt evenly");
  std::map<std::string, std::vector<int32_t>> ids;
  std::vector<double> weights;
  Draw d(11);
  int32_t sequence = 0;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    for (int64_t i = 0; i < kSlot; ++i) {
      const bool real = i < kLengths[sample];
      if (!real || i == 0) ++sequence;  // every padding token is a sequence of its own
      ids["tokens"].push_back(real ? static_cast<int32_t>(d.below(kVocabulary)) : 0);
      ids["labels"].push_back(static_cast<int32_t>(d.below(kVocabulary)));
      ids["positions"].push_back(real ? static_cast<int32_t>(i) : 0);
      ids["sequences"].push_back(sequence);
      weights.push_back(counts(options, d, sample, i) ? 1 : 0);
    }
  }
  set_weights(options, weights);
  Batch batch;
  for (int64_t m = 0; m < options.microbatches; ++m) {
    HostTensors t;
    for (const auto& [name, all] : ids) {
      t[name] = HostTensor(Dtype::i32, {part});
      std::copy_n(all.begin() + m * part, part, t[name].as<int32_t>());
    }
    t["weights"] = HostTensor(Dtype::f64, {part});
    std::copy_n(weights.begin() + m * part, part, t["weights"].as<double>());
    batch.microbatches.push_back(std::move(t));
  }
  batch.step["hyper"] = HostTensor(Dtype::f64, {2});
  batch.step["hyper"].as<double>()[0] = kHarnessRate;
  batch.step["hyper"].as<double>()[1] = 1;
  return batch;
}

LoraConfig fault_lora(const std::vector<std::string>& targets) {
  LoraConfig lora;
  lora.rank = 4;
  lora.targets = targets;
  if (targets.empty())
    lora.targets = {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"};
  return lora;
}

Truth fault_truth(const std::string& config, const FaultBatch& options,
                  const std::optional<LoraConfig>& lora) {
  const auto build = [&](int64_t slots) {
    Model model = build_model(config, {slots, kSlot}, Head::loss);
    return with_dtype(lora ? with_lora(std::move(model), *lora) : model, Dtype::f64);
  };
  FaultBatch one = options;
  one.microbatches = 1;
  const Model whole = build(kSamples);
  Truth t;
  t.parameters = random_parameters(whole, 5);
  t.reference = reference_step(whole, t.parameters, fault_batch(one));
  t.after = t.parameters;
  reference_sgd(t.after, t.reference.gradients, kHarnessRate);
  t.model = build(kSamples / options.microbatches);
  t.batch = fault_batch(options);
  return t;
}

Plan fault_plan(int pp, int dp, int tp, int64_t microbatches, const std::string& splits) {
  return parse_plan(fmt::format("mesh = ['pp={}', 'dp={}', 'tp={}']\nmicrobatches = {}\n[split]\n"
                                "{}[pipeline]\naxis = 'pp'\n",
                                pp, dp, tp, microbatches, splits),
                    "test");
}

std::string held_against(const Truth& truth, const Plan& plan, const LowerOptions& options) {
  SessionOptions session;
  session.poison = true;
  session.limit_seconds = 10;
  try {
    return compare_step(lower(truth.model, plan, options).programs, truth, session);
  } catch (const Error& e) {
    return fmt::format("refused: {}", e.what());
  }
}

}  // namespace plait
