// The byte tokenizer, and what all tokenizers share.
#include <nlohmann/json.hpp>

#include "plait/base/digest.h"
#include "plait/base/error.h"
#include "plait/tokens/byte_level.h"
#include "plait/tokens/tokenizer.h"
#include "plait/tokens/tokenizer_files.h"

namespace plait {

void Tokenizer::set_special_ids(const SpecialIds& ids) {
  const auto check = [&](std::string_view name, const std::optional<int32_t>& id) {
    if (id && (*id < 0 || *id >= vocabulary()))
      fail("{} id {}: outside the vocabulary of {} ids", name, *id, vocabulary());
  };
  check("bos", ids.bos);
  check("eos", ids.eos);
  check("pad", ids.pad);
  check("unk", ids.unk);
  special_ = ids;
}

uint64_t Tokenizer::digest_with_special(uint64_t content) const {
  const auto text = [](const std::optional<int32_t>& id) { return id ? *id : -1; };
  return plait::digest(fmt::format("{} {} {} {} {} {}", kind(), content, text(special_.bos),
                                   text(special_.eos), text(special_.pad), text(special_.unk)));
}

void Tokenizer::check_id(int32_t id) const {
  if (id < 0 || id >= vocabulary())
    fail("token id {}: outside the vocabulary of {} ids", id, vocabulary());
}

namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::string_view kind() const override { return "bytes"; }
  int64_t vocabulary() const override { return 256; }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<int32_t> ids(text.size());
    for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, bool) const override {
    std::string text(ids.size(), '\0');
    for (size_t i = 0; i < ids.size(); ++i) {
      check_id(ids[i]);
      text[i] = static_cast<char>(ids[i]);
    }
    return text;
  }

  std::optional<int32_t> id(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<unsigned char>(token[0]);
  }
  std::optional<std::string> token(int32_t id) const override {
    if (id < 0 || id > 255) return std::nullopt;
    return std::string(1, static_cast<char>(id));
  }
  bool is_special(int32_t) const override { return false; }
  uint64_t digest() const override { return digest_with_special(0); }
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::string byte_tokenizer_json() {
  using Json = nlohmann::ordered_json;
  Json vocabulary = Json::object();
  for (int b = 0; b < 256; ++b) vocabulary[to_byte_level(std::string(1, static_cast<char>(b)))] = b;
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", Json::array()},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", byte_level},
                     {"post_processor", nullptr},
                     {"decoder", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", vocabulary},
                       {"merges", Json::array()}}}};
  return file.dump(2) + "\n";
}

}  // namespace plait
