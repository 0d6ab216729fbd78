// The "decoder" of a tokenizer.json: tokens back to text.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plait {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // The texts of the tokens to texts that make the whole when joined.
  virtual std::vector<std::string> apply(std::vector<std::string> tokens) const = 0;
};

// Null for a JSON null. Throws Error naming what is not supported; `where` opens the message.
std::unique_ptr<TokenDecoder> read_decoder(const nlohmann::json& value, const std::string& where);

// Bytes from tokens like "<0x0A>" to text: a run that is no valid UTF-8 becomes one U+FFFD per
// byte.
void append_byte_run(std::string& text, const std::string& bytes);
// The byte of "<0x0A>"; -1 for any other token.
int byte_fallback_value(const std::string& token);

}  // namespace plait
