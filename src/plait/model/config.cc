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

// Keys that do not change what the model computes in training or inference here.
constexpr std::string_view kHarmless[] = {
    "_name_or_path",
    "bos_token_id",
    "eos_token_id",
    "gradient_checkpointing",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "return_dict",
    "return_dict_in_generate",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "transformers_version",
    "use_cache",
};

std::string shown(const json& value) {
  std::string text = value.dump();
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

[[noreturn]] void refuse(const std::string& key, const json& found, std::string_view expected) {
  fail("config.json: '{}' is {}, expected {}", key, shown(found), expected);
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

const json* Config::find(const std::string& key) {
  asked_.insert(key);
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

int64_t Config::integer(const std::string& key, int64_t low, int64_t high,
                        std::optional<int64_t> fallback) {
  const json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) fail("config.json: '{}' is missing", key);
  const bool fits = value->is_number_unsigned() &&
                    value->get<uint64_t>() >= static_cast<uint64_t>(low) &&
                    value->get<uint64_t>() <= static_cast<uint64_t>(high);
  if (!fits) refuse(key, *value, fmt::format("a whole number from {} to {}", low, high));
  return value->get<int64_t>();
}

double Config::number(const std::string& key, double low, double high, double fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
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
    if (std::find(std::begin(kHarmless), std::end(kHarmless), key) != std::end(kHarmless)) continue;
    fail(
        "config.json: '{}' ({}) is not understood and may change what the model computes; "
        "remove it if it does not",
        key, shown(value));
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
