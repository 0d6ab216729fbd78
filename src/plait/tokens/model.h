// The "model" of a tokenizer.json: one piece of text to ids.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "plait/tokens/vocabulary.h"

namespace plait {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual std::string_view kind() const = 0;
  // Appends the ids of one piece, which is not empty. `bytes`: it stands for its characters in
  // byte_level.h.
  virtual void encode(std::string_view piece, bool bytes, std::vector<int32_t>& ids) const = 0;
  virtual std::optional<int32_t> unk() const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

// Throws Error naming what is not supported or not sound; `where` opens the message.
std::unique_ptr<TokenModel> read_token_model(const nlohmann::json& value, const std::string& where);

class Section;
std::unique_ptr<TokenModel> read_bpe(Section& s);
std::unique_ptr<TokenModel> read_unigram(Section& s);

// Ids of "<0x00>" to "<0xFF>"; all of them, or an empty list.
std::vector<int32_t> byte_fallback_ids(const Vocabulary& vocabulary);
std::string byte_fallback_token(unsigned char byte);

}  // namespace plait
