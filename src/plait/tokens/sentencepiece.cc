#include "plait/tokens/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <set>

#include "plait/base/digest.h"
#include "plait/base/error.h"
#include "plait/tokens/decoder.h"
#include "plait/tokens/sentencepiece_check.h"
#include "plait/tokens/utf8.h"
#include "plait/tokens/vocabulary.h"

namespace plait {

namespace {

constexpr std::string_view kRevision = "sentencepiece 2";
constexpr std::string_view kMark = "\xe2\x96\x81";  // stands for a space
// A second occurrence of a message is merged into the first: normalizer { add_dummy_prefix: false
// }.
constexpr std::string_view kNoDummyPrefix("\x1a\x02\x18\x00", 4);

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view file, const std::string& source,
                         const SentencePieceOptions& options)
      : source_(source), options_(options), facts_(check_sentencepiece(file, source)) {
    load(first_, file);
    if (facts_.add_dummy_prefix && !options.legacy) {
      load(rest_, std::string(file) + std::string(kNoDummyPrefix));
      has_rest_ = true;
    }
    pieces_ = first_.GetPieceSize();
    read_special();
    add_tokens();
    around_text(options.add_bos, special_.bos, before_);
    around_text(options.add_eos, special_.eos, after_);
    content_digest_ = plait::digest(file);
  }

  std::string_view kind() const override { return "sentencepiece"; }
  int64_t vocabulary() const override { return std::max(pieces_, added_.size()); }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& o) const override {
    require_utf8(text, "text to tokenize");
    std::vector<int32_t> ids;
    if (o.add_special) ids = before_;
    for (const AddedTokens::Part& p : tokens_.split(text, o.parse_special)) {
      if (p.id) {
        ids.push_back(*p.id);
        continue;
      }
      std::vector<int> part;
      const auto& processor = has_rest_ && p.begin > 0 ? rest_ : first_;
      check(processor.Encode(view(text.substr(p.begin, p.end - p.begin)), &part), "encoding");
      ids.insert(ids.end(), part.begin(), part.end());
    }
    if (o.add_special) ids.insert(ids.end(), after_.begin(), after_.end());
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    std::vector<int32_t> run;
    for (const int32_t id : ids) {
      check_id(id);
      if (skip_special && is_special(id)) continue;
      const std::string* token = added_.token(id);
      if (token == nullptr && id < pieces_) {
        run.push_back(id);
        continue;
      }
      append_run(run, text);
      run.clear();
      if (token != nullptr) text += *token;
    }
    append_run(run, text);
    if (has_rest_ && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

  std::optional<int32_t> id(std::string_view token) const override {
    if (const auto added = added_.id(token)) return added;
    const int id = first_.PieceToId(view(token));
    if (first_.IsUnknown(id) && token != facts_.unk) return std::nullopt;
    return id;
  }
  std::optional<std::string> token(int32_t id) const override {
    if (const std::string* t = added_.token(id)) return *t;
    if (id < 0 || id >= pieces_) return std::nullopt;
    return first_.IdToPiece(id);
  }
  bool is_special(int32_t id) const override {
    return std::binary_search(special_ids_.begin(), special_ids_.end(), id);
  }
  uint64_t digest() const override {
    std::string text = fmt::format("{} {} {} {}", kRevision, content_digest_, before_, after_);
    for (const AddedToken& t : options_.added)
      text += fmt::format("\n{} {} {} {} {} {}", t.content, t.id, t.single_word, t.lstrip, t.rstrip,
                          t.special);
    return digest_with_special(plait::digest(text + (options_.legacy ? " legacy" : "")));
  }

 private:
  static absl::string_view view(std::string_view s) { return {s.data(), s.size()}; }

  void check(const sentencepiece::util::Status& status, std::string_view what) const {
    if (!status.ok()) fail("{}: {}: {}", source_, what, status.ToString());
  }
  void load(sentencepiece::SentencePieceProcessor& processor, std::string_view file) {
    check(processor.LoadFromSerializedProto(view(file)), "not a SentencePiece model");
  }

  // Pieces between added tokens as text. The library would drop white space that opens a run.
  void append_run(const std::vector<int32_t>& run, std::string& text) const {
    std::string part, bytes;
    const auto flush = [&] {
      append_bytes(bytes, part);
      bytes.clear();
    };
    for (const int32_t id : run) {
      std::string piece = first_.IdToPiece(id);
      if (first_.IsByte(id)) {
        bytes.push_back(static_cast<char>(byte_fallback_value(piece)));
        continue;
      }
      flush();
      if (first_.IsControl(id)) continue;
      for (size_t at = piece.find(kMark); at != piece.npos; at = piece.find(kMark, at + 1))
        piece.replace(at, kMark.size(), " ");
      part += piece;
    }
    flush();
    if (facts_.remove_extra_whitespaces && text.empty())
      part.erase(0, part.find_first_not_of(' '));
    else if (options_.legacy && facts_.add_dummy_prefix && part.starts_with(' '))
      part.erase(0, 1);
    text += part;
  }

  // As the library does: one U+FFFD for every byte that opens no character.
  static void append_bytes(std::string_view bytes, std::string& text) {
    while (!bytes.empty()) {
      const size_t valid = find_invalid_utf8(bytes).value_or(bytes.size());
      text += bytes.substr(0, valid);
      bytes.remove_prefix(valid);
      if (bytes.empty()) return;
      text += "\xef\xbf\xbd";
      bytes.remove_prefix(1);
    }
  }

  void read_special() {
    const auto known = [](int id) { return id >= 0 ? std::optional<int32_t>(id) : std::nullopt; };
    special_ = {known(first_.bos_id()), known(first_.eos_id()), known(first_.pad_id()),
                known(first_.unk_id())};
  }

  void around_text(bool wanted, const std::optional<int32_t>& id, std::vector<int32_t>& side) {
    if (wanted && id) side.push_back(*id);
  }

  void add_token(const AddedToken& t) {
    const int64_t expected = id(t.content).value_or(static_cast<int32_t>(vocabulary()));
    if (t.id != expected)
      fail("{}: added token '{}' has id {}; expected {}", source_, t.content, t.id, expected);
    added_.add(t.content, t.id, source_);
    tokens_.add(t, t.content);
    if (t.special) special_ids_.push_back(t.id);
  }

  // The model's control pieces ("<s>", "[INST]") are special tokens to Hugging Face's libraries,
  // and so is the unknown piece; to Google's library their text is text.
  void add_tokens() {
    std::vector<AddedToken> all = options_.added;
    std::set<std::string_view> given;
    for (const AddedToken& t : options_.added) given.insert(t.content);
    const auto add_special = [&](const std::string& piece, int32_t id) {
      if (!given.contains(piece))
        all.push_back({.content = piece, .id = id, .normalized = false, .special = true});
    };
    if (special_.unk) add_special(facts_.unk, *special_.unk);
    for (const auto& [piece, id] : facts_.control) add_special(piece, id);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    for (const AddedToken& t : all) add_token(t);
    std::sort(special_ids_.begin(), special_ids_.end());
  }

  std::string source_;
  SentencePieceOptions options_;
  SentencePieceFacts facts_;
  sentencepiece::SentencePieceProcessor first_, rest_;  // rest_: without the leading space
  bool has_rest_ = false;
  int64_t pieces_ = 0;
  Vocabulary added_;
  AddedTokens tokens_;
  std::vector<int32_t> special_ids_, before_, after_;
  uint64_t content_digest_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view file, const std::string& source,
                                               const SentencePieceOptions& options) {
  try {
    return std::make_unique<SentencePieceTokenizer>(file, source, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {  // its tables throw on their own account
    fail("{}: not a SentencePiece model: {}", source, e.what());
  }
}

}  // namespace plait
