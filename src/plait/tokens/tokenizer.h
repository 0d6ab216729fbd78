// Text to token ids and back.
//
//   const auto tokenizer = load_tokenizer("models/smollm");    // a folder, or one file
//   std::vector<int32_t> ids = tokenizer->encode("Hello there");
//   std::string text = tokenizer->decode(ids);
//
// Three kinds: "bytes" (256 ids, any input), "bpe" and "unigram" (a Hugging Face tokenizer.json),
// "sentencepiece" (a .model file). Ids are those of Hugging Face's libraries, exactly: what
// cannot be done exactly is refused when the file is read, by its place in the file.
//
// A tokenizer is not changed once loaded: any number of threads may use it at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

struct EncodeOptions {
  bool add_special = true;    // what the model expects around a text (bos, eos), where it does
  bool parse_special = true;  // special tokens that stand in the text become their ids
};

// Ids with a meaning; none where the files name none.
struct SpecialIds {
  std::optional<int32_t> bos, eos, pad, unk;
  bool operator==(const SpecialIds&) const = default;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view kind() const = 0;
  virtual int64_t vocabulary() const = 0;  // every id is below it; not every one need be used

  // The kind "bytes" takes any input; the others throw Error for broken UTF-8 (with its offset)
  // and for a character that the vocabulary has no token for.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const = 0;
  // Throws Error for an id outside the vocabulary. Except for the kind "bytes", the text is valid
  // UTF-8: bytes that make no character come out as U+FFFD.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = false) const = 0;

  // By the token's text in the vocabulary: "Ġthe", "▁the", "<|endoftext|>".
  virtual std::optional<int32_t> id(std::string_view token) const = 0;
  virtual std::optional<std::string> token(int32_t id) const = 0;  // none: no such id
  virtual bool is_special(int32_t id) const = 0;                   // left out by skip_special

  // Changes when anything changes that decides ids (the special ids among them): a cache of ids
  // is good for as long as this is the same.
  virtual uint64_t digest() const = 0;

  std::optional<int32_t> bos() const { return special_.bos; }
  std::optional<int32_t> eos() const { return special_.eos; }
  std::optional<int32_t> pad() const { return special_.pad; }
  std::optional<int32_t> unk() const { return special_.unk; }
  void set_special_ids(const SpecialIds& ids);  // checked against the vocabulary; before sharing

 protected:
  uint64_t digest_with_special(uint64_t content) const;
  void check_id(int32_t id) const;  // throws

  SpecialIds special_;
};

// 256 ids, one per byte; no special tokens.
std::unique_ptr<Tokenizer> byte_tokenizer();

// A tokenizer.json or .model file; or a folder, see below.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// What a Hugging Face model folder says of text.
struct TokenizerFolder {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string chat_template;  // Jinja; empty: none
  std::string bos_token, eos_token;
  // "bos_token", "eos_token", "pad_token", ... as the files name them.
  std::map<std::string, std::string> special_tokens;
};
// tokenizer.json, or else tokenizer.model or spiece.model; tokenizer_config.json,
// special_tokens_map.json, chat_template.jinja and chat_template.json where they are.
TokenizerFolder load_tokenizer_folder(const std::string& folder);

// Offset of the first byte that no valid UTF-8 can have there (surrogates, overlong forms and
// what is above U+10FFFF are invalid); none: the text is valid.
std::optional<size_t> find_invalid_utf8(std::string_view text);

}  // namespace plait
