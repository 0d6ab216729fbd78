// A Hugging Face tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "plait/tokens/added_tokens.h"
#include "plait/tokens/tokenizer.h"

namespace plait {

// What a tokenizer_config.json beside the file changes in it.
struct TokenizerChanges {
  std::vector<AddedToken> added;  // tokens that the file may lack
  // Given: these ids go around a text, whatever the file's post-processor says.
  struct Around {
    std::vector<std::string> before, after;  // tokens
  };
  std::optional<Around> around;
};

// `text` is the file's content; `source`, its path, opens every message.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& source,
                                                const TokenizerChanges& changes = {});

}  // namespace plait
