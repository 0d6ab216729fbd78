#include "plait/tokens/tokenizer_json.h"

#include <algorithm>
#include <map>

#include "plait/base/digest.h"
#include "plait/base/error.h"
#include "plait/io/json.h"
#include "plait/tokens/decoder.h"
#include "plait/tokens/json_section.h"
#include "plait/tokens/model.h"
#include "plait/tokens/normalize.h"
#include "plait/tokens/post_process.h"
#include "plait/tokens/pre_tokenize.h"
#include "plait/tokens/tokenizer_files.h"
#include "plait/tokens/utf8.h"

namespace plait {

using nlohmann::json;

namespace {

// Part of every digest: raise it when the same file comes to give other ids.
constexpr std::string_view kRevision = "tokenizer.json 2";

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(const json& file, const std::string& source, const TokenizerChanges& changes)
      : source_(source) {
    Section s(file, source, true);
    s.ignore("version");
    s.ignore("truncation");  // settings of a call, which Hugging Face's callers set anew
    s.ignore("padding");
    const auto part = [&](const std::string& name) {
      return s.has(name) ? s.value(name) : json(nullptr);
    };
    model_ = read_token_model(s.value("model"), s.where("model"));
    normalizer_ = read_normalizer(part("normalizer"), s.where("normalizer"));
    pre_tokenizers_ = read_pre_tokenizer(part("pre_tokenizer"), s.where("pre_tokenizer"));
    decoder_ = read_decoder(part("decoder"), s.where("decoder"));
    read_added(part("added_tokens"), s.where("added_tokens"), changes);
    post_ = read_post_processor(part("post_processor"), vocabulary(), s.where("post_processor"));
    s.finish();
    if (changes.around) put_around(*changes.around);
    special_.unk = model_->unk();
  }

  std::string_view kind() const override { return model_->kind(); }
  int64_t vocabulary() const override {
    return std::max(model_->vocabulary().size(), added_.size());
  }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& o) const override {
    require_utf8(text, "text to tokenize");
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 3 + 8);
    if (o.add_special) ids.insert(ids.end(), post_.before.begin(), post_.before.end());
    for (const AddedTokens::Part& p : raw_tokens_.split(text, o.parse_special)) {
      if (p.id)
        ids.push_back(*p.id);
      else
        encode_raw(text.substr(p.begin, p.end - p.begin), p.begin == 0, o.parse_special, ids);
    }
    if (o.add_special) ids.insert(ids.end(), post_.after.begin(), post_.after.end());
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const int32_t id : ids) {
      check_id(id);
      if (skip_special && is_special(id)) continue;
      if (const auto form = normal_forms_.find(id); form != normal_forms_.end())
        tokens.push_back(form->second);
      else if (auto t = token(id))
        tokens.push_back(std::move(*t));
    }
    if (decoder_ != nullptr) tokens = decoder_->apply(std::move(tokens));
    std::string text;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (decoder_ == nullptr && i > 0) text += ' ';  // as Hugging Face's library does
      text += tokens[i];
    }
    return text;
  }

  std::optional<int32_t> id(std::string_view token) const override {
    const auto added = added_.id(token);
    return added ? added : model_->vocabulary().id(token);
  }
  std::optional<std::string> token(int32_t id) const override {
    const std::string* t = added_.token(id);
    if (t == nullptr) t = model_->vocabulary().token(id);
    return t == nullptr ? std::nullopt : std::optional(*t);
  }
  bool is_special(int32_t id) const override {
    return std::binary_search(special_ids_.begin(), special_ids_.end(), id);
  }
  uint64_t digest() const override { return digest_with_special(content_digest_); }
  void set_content_digest(uint64_t digest) { content_digest_ = digest; }

 private:
  // Text between added tokens that are found in the raw text.
  void encode_raw(std::string_view text, bool at_start, bool special,
                  std::vector<int32_t>& ids) const {
    std::string normal(text);
    if (normalizer_ != nullptr) {
      at_start = at_start && !normalizer_->drops_start(text);
      normal = normalizer_->apply(std::move(normal));
    }
    if (normal_tokens_.empty()) return encode_text(std::move(normal), at_start, ids);
    for (const AddedTokens::Part& p : normal_tokens_.split(normal, special)) {
      if (p.id)
        ids.push_back(*p.id);
      else
        encode_text(normal.substr(p.begin, p.end - p.begin), at_start && p.begin == 0, ids);
    }
  }

  void encode_text(std::string text, bool at_start, std::vector<int32_t>& ids) const {
    if (text.empty()) return;
    Pieces pieces;
    pieces.pieces = {{0, text.size()}};
    pieces.text = std::move(text);
    pieces.at_start = at_start;
    for (const auto& step : pre_tokenizers_) step->apply(pieces);
    for (const TextPiece& p : pieces.pieces) model_->encode(pieces.at(p), pieces.bytes, ids);
  }

  void read_added(const json& list, const std::string& where, const TokenizerChanges& changes) {
    if (list.is_null()) return add_all(where, changes.added);
    if (!list.is_array()) fail("{}: expected an array, found {}", where, json_kind(list));
    std::vector<AddedToken> tokens;
    for (size_t i = 0; i < list.size(); ++i)
      tokens.push_back(read_added_token(list[i], std::nullopt, fmt::format("{}[{}]", where, i)));
    add_all(where, tokens);
    for (const AddedToken& t : changes.added)
      if (!added_.id(t.content)) add_all(source_ + ": token of tokenizer_config.json", {t});
  }

  // Hugging Face's library gives an added token its id in the model, or the next free one; where
  // the file says another id, it would be passed over in silence.
  void add_all(const std::string& where, std::vector<AddedToken> tokens) {
    std::sort(tokens.begin(), tokens.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    for (const AddedToken& t : tokens) {
      const int64_t expected =
          model_->vocabulary().id(t.content).value_or(static_cast<int32_t>(vocabulary()));
      if (t.id != expected)
        fail("{}: '{}' has id {}, where Hugging Face's library would use {}", where, t.content,
             t.id, expected);
      added_.add(t.content, t.id, where);
      if (t.special) special_ids_.push_back(t.id);
      if (t.normalized && normalizer_ != nullptr)
        normal_tokens_.add(t, normal_forms_[t.id] = normalizer_->apply(t.content));
      else if (t.normalized)
        normal_tokens_.add(t, t.content);
      else
        raw_tokens_.add(t, t.content);
    }
    std::sort(special_ids_.begin(), special_ids_.end());
  }

  void put_around(const TokenizerChanges::Around& around) {
    const auto ids = [&](const std::vector<std::string>& tokens) {
      std::vector<int32_t> result;
      for (const std::string& t : tokens) {
        const auto found = id(t);
        if (!found) fail("{}: '{}', which is to go around a text, is no token", source_, t);
        result.push_back(*found);
      }
      return result;
    };
    post_ = {ids(around.before), ids(around.after)};
  }

  std::string source_;
  std::unique_ptr<TokenModel> model_;
  std::unique_ptr<Normalizer> normalizer_;
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizers_;
  std::unique_ptr<TokenDecoder> decoder_;
  PostProcess post_;
  Vocabulary added_;
  AddedTokens raw_tokens_, normal_tokens_;
  std::map<int32_t, std::string> normal_forms_;  // what added tokens are decoded as, if not content
  std::vector<int32_t> special_ids_;             // sorted
  uint64_t content_digest_ = 0;
};

std::string changes_text(const TokenizerChanges& changes) {
  std::string text;
  for (const AddedToken& t : changes.added)
    text += fmt::format("{}\n{} {} {} {} {} {}\n", t.content, t.id, t.single_word, t.lstrip,
                        t.rstrip, t.normalized, t.special);
  if (changes.around)
    text += fmt::format("around {} text {}", changes.around->before, changes.around->after);
  return text;
}

// What byte_tokenizer_json() wrote, whatever a call set in it besides.
bool is_bytes(const json& file) {
  static const json bytes = json::parse(byte_tokenizer_json());
  if (!file.is_object() || file.size() != bytes.size()) return false;
  for (auto it = bytes.begin(); it != bytes.end(); ++it) {
    const bool of_a_call = it.key() == "truncation" || it.key() == "padding";
    const auto found = file.find(it.key());
    if (found == file.end() || (!of_a_call && *found != *it)) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& source,
                                                const TokenizerChanges& changes) {
  const json file = parse_json(text, source, 64, size_t{1} << 24);
  if (changes.added.empty() && !changes.around && is_bytes(file)) return byte_tokenizer();
  auto result = std::make_unique<JsonTokenizer>(file, source, changes);
  result->set_content_digest(
      digest(fmt::format("{} {} {}", kRevision, digest(text), changes_text(changes))));
  return result;
}

}  // namespace plait
