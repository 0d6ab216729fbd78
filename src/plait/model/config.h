// Reading config.json: every key is either asked for by the family or known to be harmless;
// any other is refused by name, because it may change the mathematics.
//
//   Config c(text);
//   const int64_t width = c.integer("hidden_size", 1, 1 << 20);
//   c.only("mlp_bias", {false});
//   c.finish();
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "plait/model/families.h"

namespace plait {

class Config {
 public:
  explicit Config(std::string_view text);
  // A whole number in [low, high]; without a fallback the key must be there. null is absent.
  int64_t integer(const std::string& key, int64_t low, int64_t high,
                  std::optional<int64_t> fallback = {});
  double number(const std::string& key, double low, double high,
                std::optional<double> fallback = {});
  bool boolean(const std::string& key, bool fallback);
  std::string text(const std::string& key, const std::string& fallback);
  bool has(const std::string& key);      // there and not null
  bool is_null(const std::string& key);  // there and null
  // Lists; an absent one is empty.
  std::vector<std::string> texts(const std::string& key);
  std::vector<double> numbers(const std::string& key, double low, double high);
  // The object under a key: a Config of its own, to be finished by itself.
  Config section(const std::string& key);
  std::vector<std::string> keys() const;
  // Absent, or one of the values that plait computes; `advice` ends the refusal.
  void only(const std::string& key, std::initializer_list<nlohmann::json> allowed,
            std::string_view advice = "another value is not supported yet");
  void finish() const;             // throws on a key that nobody asked for
  Dtype dtype();                   // float64 gives f64, all other floating-point types f32
  Dtype storage();                 // what files of the model hold: bf16, f16, f32 or f64
  FileRules files;                 // the family sets them
  std::vector<std::string> notes;  // Model::notes
  Dropout dropout = Dropout::refused_in_training;  // the caller sets it

 private:
  Config(nlohmann::json json, std::string where);
  const nlohmann::json* find(const std::string& key);
  [[noreturn]] void refuse(const std::string& key, const nlohmann::json& found,
                           std::string_view expected) const;
  nlohmann::json json_;
  std::string where_;  // "rope_scaling." inside of a section
  std::set<std::string> asked_;
};

// config.json with its dtype key naming `dtype`, one of files; the same text when it does already.
std::string config_with_dtype(const std::string& text, Dtype dtype);

// A family turns config.json into the text of a model (model.h): reads what it understands and
// writes extents, parameters, blocks and uses. families.cc adds the rest.
struct Family {
  std::string_view model_type, architecture;
  std::string (*text)(Config&, const BatchShape&, Head);
};
std::string llama_text(Config& config, const BatchShape& batch, Head head);
std::string mistral_text(Config& config, const BatchShape& batch, Head head);
std::string qwen2_text(Config& config, const BatchShape& batch, Head head);
std::string qwen3_text(Config& config, const BatchShape& batch, Head head);
std::string gemma_text(Config& config, const BatchShape& batch, Head head);
std::string gemma2_text(Config& config, const BatchShape& batch, Head head);
std::string gemma3_text(Config& config, const BatchShape& batch, Head head);
std::string olmo2_text(Config& config, const BatchShape& batch, Head head);
std::string smollm3_text(Config& config, const BatchShape& batch, Head head);
std::string gpt2_text(Config& config, const BatchShape& batch, Head head);

// The largest sizes that a config.json may ask for.
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxLayers = 1000;
inline constexpr int64_t kMaxIds = (int64_t{1} << 31) - 1;  // tokens, positions: i32

}  // namespace plait
