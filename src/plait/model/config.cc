#include "plait/model/config.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "plait/io/json.h"

namespace plait {

using nlohmann::json;

namespace {

constexpr int kMaxDepth = 16;
constexpr size_t kMaxMembers = 10'000;

// Keys that do not change what the model computes in training or inference here: ids and settings
// of generation, bookkeeping, and pretraining_tp, which says in how many pieces old versions of
// Hugging Face computed the same products.
constexpr std::string_view kHarmless[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "is_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

std::string shown(const json& value) {
  std::string text = value.dump();
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

struct TorchName {
  std::string_view name;
  Dtype dtype;
};
constexpr TorchName kTorchNames[] = {{"float64", Dtype::f64},
                                     {"float32", Dtype::f32},
                                     {"bfloat16", Dtype::bf16},
                                     {"float16", Dtype::f16}};

std::string_view torch_name(Dtype dtype) {
  for (const TorchName& t : kTorchNames)
    if (t.dtype == dtype) return t.name;
  fail("element type {} cannot stand in config.json", info(dtype).name);
}

}  // namespace

Config::Config(std::string_view text)
    : json_(parse_json(text, "config.json", kMaxDepth, kMaxMembers)) {
  if (!json_.is_object()) fail("config.json: found {}, expected a JSON object", shown(json_));
}

Config::Config(json json, std::string where) : json_(std::move(json)), where_(std::move(where)) {}

void Config::refuse(const std::string& key, const json& found, std::string_view expected) const {
  fail("config.json: '{}{}' is {}, expected {}", where_, key, shown(found), expected);
}

const json* Config::find(const std::string& key) {
  asked_.insert(key);
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

int64_t Config::integer(const std::string& key, int64_t low, int64_t high,
                        std::optional<int64_t> fallback) {
  const json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) fail("config.json: '{}{}' is missing", where_, key);
  const bool fits = value->is_number_unsigned() &&
                    value->get<uint64_t>() >= static_cast<uint64_t>(low) &&
                    value->get<uint64_t>() <= static_cast<uint64_t>(high);
  if (!fits) refuse(key, *value, fmt::format("a whole number from {} to {}", low, high));
  return value->get<int64_t>();
}

double Config::number(const std::string& key, double low, double high,
                      std::optional<double> fallback) {
  const json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) fail("config.json: '{}{}' is missing", where_, key);
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= low && number <= high))
    refuse(key, *value, fmt::format("a number from {} to {}", low, high));
  return number;
}

bool Config::boolean(const std::string& key, bool fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(key, *value, "true or false");
  return value->get<bool>();
}

std::string Config::text(const std::string& key, const std::string& fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) refuse(key, *value, "a string");
  return value->get<std::string>();
}

bool Config::has(const std::string& key) { return find(key) != nullptr; }

bool Config::is_null(const std::string& key) {
  asked_.insert(key);
  const auto it = json_.find(key);
  return it != json_.end() && it->is_null();
}

std::vector<std::string> Config::texts(const std::string& key) {
  std::vector<std::string> result;
  const json* value = find(key);
  if (value == nullptr) return result;
  if (!value->is_array()) refuse(key, *value, "a list of strings");
  for (const json& item : *value) {
    if (!item.is_string()) refuse(key, *value, "a list of strings");
    result.push_back(item.get<std::string>());
  }
  return result;
}

std::vector<double> Config::numbers(const std::string& key, double low, double high) {
  std::vector<double> result;
  const json* value = find(key);
  if (value == nullptr) return result;
  if (!value->is_array()) refuse(key, *value, "a list of numbers");
  for (const json& item : *value) {
    const double number = item.is_number() ? item.get<double>() : NAN;
    if (!(number >= low && number <= high))
      refuse(key, item, fmt::format("numbers from {} to {}", low, high));
    result.push_back(number);
  }
  return result;
}

Config Config::section(const std::string& key) {
  const json* value = find(key);
  if (value == nullptr) fail("config.json: '{}{}' is missing", where_, key);
  if (!value->is_object()) refuse(key, *value, "an object");
  return {*value, where_ + key + "."};
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> result;
  for (const auto& entry : json_.items()) result.push_back(entry.key());
  return result;
}

void Config::only(const std::string& key, std::initializer_list<json> allowed,
                  std::string_view advice) {
  const json* value = find(key);
  if (value == nullptr) return;
  std::string expected;
  for (const json& item : allowed) {
    if (*value == item) return;  // 0 and 0.0 are equal
    expected += (expected.empty() ? "" : " or ") + item.dump();
  }
  refuse(key, *value, fmt::format("{}; {}", expected, advice));
}

void Config::finish() const {
  for (const auto& [key, value] : json_.items()) {
    if (asked_.count(key) > 0) continue;
    const auto harmless = std::find(std::begin(kHarmless), std::end(kHarmless), key);
    if (where_.empty() && harmless != std::end(kHarmless)) continue;
    fail(
        "config.json: '{}{}' ({}) is not understood and may change what the model computes; "
        "remove it if it does not",
        where_, key, shown(value));
  }
}

Dtype Config::dtype() { return storage() == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

Dtype Config::storage() {
  const std::string dtype = text("torch_dtype", text("dtype", "float32"));
  for (const TorchName& t : kTorchNames)
    if (t.name == dtype) return t.dtype;
  fail("config.json: torch_dtype '{}', expected float64, float32, bfloat16 or float16", dtype);
}

std::string config_with_dtype(const std::string& text, Dtype dtype) {
  const Config checked(text);  // throws what parse() below would throw, in our words
  auto config = nlohmann::ordered_json::parse(text);
  bool named = false, right = true;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!config.contains(key)) continue;
    named = true;
    right = right && config[key] == torch_name(dtype);
    config[key] = torch_name(dtype);
  }
  if (named && right) return text;
  if (!named) config["torch_dtype"] = torch_name(dtype);
  return config.dump(2) + "\n";
}

}  // namespace plait
