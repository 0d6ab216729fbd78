// The "normalizer" of a tokenizer.json: text to text, before anything is split.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace plait {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;
  // The text may lose its first characters, so what is left does not start where it did.
  virtual bool drops_start(std::string_view) const { return false; }
};

// Null for a JSON null. Throws Error naming what is not supported; `where` opens the message.
std::unique_ptr<Normalizer> read_normalizer(const nlohmann::json& value, const std::string& where);

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };
// `text` must be valid UTF-8. Time n log n, whatever the text.
std::string unicode_normalized(std::string_view text, UnicodeForm form);

}  // namespace plait
