// Tokens that are found in a text as they are, before it is normalized and split: special tokens
// ("<|endoftext|>") and others that were added to a vocabulary.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/tokens/trie.h"

namespace plait {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = true;    // found in the normalized text, not in the raw one
  bool special = false;
};

// From an object with these names; the id is there too, or given. `where` opens the message.
AddedToken read_added_token(const nlohmann::json& value, std::optional<int64_t> id,
                            const std::string& where);

// Finds the tokens that were put into it, longest first.
class AddedTokens {
 public:
  // `pattern`: the content, or what the normalizer makes of it.
  void add(const AddedToken& token, const std::string& pattern);
  bool empty() const { return tokens_.empty(); }

  struct Part {
    size_t begin, end;
    std::optional<int32_t> id;  // none: text
  };
  // The parts of `text`, in order. Special tokens are text unless `special`.
  std::vector<Part> split(std::string_view text, bool special) const;

 private:
  std::optional<Part> match(std::string_view text, size_t at, size_t longest, bool special,
                            const AddedToken& token, size_t done) const;

  std::vector<AddedToken> tokens_;
  Trie trie_;
};

}  // namespace plait
