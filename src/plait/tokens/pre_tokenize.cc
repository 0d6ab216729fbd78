#include "plait/tokens/pre_tokenize.h"

#include <functional>

#include "plait/base/error.h"
#include "plait/tokens/byte_level.h"
#include "plait/tokens/json_section.h"
#include "plait/tokens/pattern.h"
#include "plait/tokens/utf8.h"

namespace plait {

using nlohmann::json;

namespace {

constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// What becomes of a delimiter that a step finds.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Collects, for one piece, the parts between delimiters and the delimiters, in order, and makes
// pieces of them.
class Cutter {
 public:
  Cutter(Behavior behavior, bool invert, std::vector<TextPiece>& out)
      : behavior_(behavior), invert_(invert), out_(out) {}

  void start(size_t offset, size_t length) {
    base_ = offset;
    length_ = length;
    done_ = 0;
    last_was_delimiter_ = false;
    have_ = false;
  }
  void delimiter(size_t begin, size_t end) {
    if (done_ != begin) part(done_, begin, invert_);
    part(begin, end, !invert_);
    done_ = end;
  }
  void finish() {
    if (done_ != length_) part(done_, length_, invert_);
    flush();
  }

 private:
  void flush() {
    if (have_ && pending_.begin < pending_.end)
      out_.push_back({base_ + pending_.begin, base_ + pending_.end});
    have_ = false;
  }
  void part(size_t begin, size_t end, bool delimiter) {
    const bool joins =
        have_ &&
        ((behavior_ == Behavior::contiguous && delimiter == last_was_delimiter_) ||
         (behavior_ == Behavior::merged_with_previous && delimiter && !last_was_delimiter_) ||
         (behavior_ == Behavior::merged_with_next && !delimiter && last_was_delimiter_));
    last_was_delimiter_ = delimiter;
    if (joins) {
      pending_.end = end;
      return;
    }
    flush();
    if (behavior_ == Behavior::removed && delimiter) return;
    pending_ = {begin, end};
    have_ = true;
  }

  Behavior behavior_;
  bool invert_;
  std::vector<TextPiece>& out_;
  size_t base_ = 0, length_ = 0, done_ = 0;
  bool last_was_delimiter_ = false, have_ = false;
  TextPiece pending_{};
};

class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(Pieces& p) const override {
    std::vector<TextPiece> out;
    out.reserve(p.text.size() / 4);
    Cutter cutter(behavior_, invert_, out);
    for (const TextPiece& piece : p.pieces) {
      cutter.start(piece.begin, piece.end - piece.begin);
      pattern_.each_match(p.at(piece),
                          [&](size_t begin, size_t end) { cutter.delimiter(begin, end); });
      cutter.finish();
    }
    p.pieces = std::move(out);
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

// Every character of which `is` holds is a delimiter.
class SplitByCharacter final : public PreTokenizer {
 public:
  SplitByCharacter(std::function<bool(char32_t)> is, Behavior behavior)
      : is_(std::move(is)), behavior_(behavior) {}

  void apply(Pieces& p) const override {
    std::vector<TextPiece> out;
    Cutter cutter(behavior_, false, out);
    for (const TextPiece& piece : p.pieces) {
      cutter.start(piece.begin, piece.end - piece.begin);
      const std::string_view text = p.at(piece);
      for (size_t i = 0; i < text.size(); i += utf8_length(text[i]))
        if (is_(utf8_at(text, i))) cutter.delimiter(i, i + utf8_length(text[i]));
      cutter.finish();
    }
    p.pieces = std::move(out);
  }

 private:
  std::function<bool(char32_t)> is_;
  Behavior behavior_;
};

// Rewrites every piece; `rewrite` appends the new text of one to its second argument.
void rewrite_pieces(
    Pieces& p, const std::function<void(std::string_view, bool first, std::string&)>& rewrite) {
  std::string text;
  text.reserve(p.text.size() + p.text.size() / 4);
  for (size_t i = 0; i < p.pieces.size(); ++i) {
    const size_t begin = text.size();
    rewrite(p.at(p.pieces[i]), i == 0 && p.at_start, text);
    p.pieces[i] = {begin, text.size()};
  }
  p.text = std::move(text);
}

class PrefixSpace final : public PreTokenizer {
 public:
  void apply(Pieces& p) const override {
    rewrite_pieces(p, [](std::string_view piece, bool, std::string& out) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  }
};

class ByteLevelStep final : public PreTokenizer {
 public:
  explicit ByteLevelStep(bool is_last) : is_last_(is_last) {}
  void apply(Pieces& p) const override {
    if (is_last_) {
      p.bytes = true;
      return;
    }
    rewrite_pieces(p, [](std::string_view piece, bool, std::string& out) {
      for (const char b : piece) append_utf8(out, byte_character(static_cast<unsigned char>(b)));
    });
  }

 private:
  bool is_last_;
};

class MetaspaceStep final : public PreTokenizer {
 public:
  MetaspaceStep(char32_t replacement, PrependScheme scheme) : scheme_(scheme) {
    append_utf8(replacement_, replacement);
  }
  void apply(Pieces& p) const override {
    rewrite_pieces(p, [&](std::string_view piece, bool first, std::string& out) {
      const bool wanted =
          scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && first);
      const bool there = piece.starts_with(' ') || piece.starts_with(replacement_);
      if (wanted && !there) out += replacement_;
      for (const char c : piece) {
        if (c == ' ')
          out += replacement_;
        else
          out += c;
      }
    });
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
};

Behavior read_behavior(Section& s, std::optional<std::string> otherwise) {
  const std::string name = otherwise ? s.string("behavior", *otherwise) : s.string("behavior");
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  s.error("behavior",
          "unknown behavior '{}'; known are Removed, Isolated, MergedWithPrevious, "
          "MergedWithNext, Contiguous",
          name);
}

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

void read_into(const json& value, const std::string& where, bool is_last, Steps& steps);

void read_byte_level(Section& s, bool is_last, Steps& steps) {
  if (s.boolean("add_prefix_space", true)) steps.push_back(std::make_unique<PrefixSpace>());
  s.boolean("trim_offsets", true);  // concerns offsets, which plait does not report
  if (s.boolean("use_regex", true))
    steps.push_back(
        std::make_unique<Split>(Pattern::regex(kGpt2Words, s.where()), Behavior::isolated, false));
  steps.push_back(std::make_unique<ByteLevelStep>(is_last));
}

void read_metaspace(Section& s, Steps& steps) {
  const char32_t replacement = s.character("replacement");
  s.ignore("str_rep");
  const PrependScheme scheme = read_prepend_scheme(s);
  steps.push_back(std::make_unique<MetaspaceStep>(replacement, scheme));
  if (!s.boolean("split", true)) return;
  std::string mark;
  append_utf8(mark, replacement);
  steps.push_back(
      std::make_unique<Split>(Pattern::literal(mark), Behavior::merged_with_next, false));
}

void read_sequence(Section& s, bool is_last, Steps& steps) {
  const json& list = s.array("pretokenizers");
  for (size_t i = 0; i < list.size(); ++i)
    read_into(list[i], fmt::format("{}[{}]", s.where("pretokenizers"), i),
              is_last && i + 1 == list.size(), steps);
}

void read_one(Section& s, const std::string& type, bool is_last, Steps& steps) {
  const auto by_character = [&](std::function<bool(char32_t)> is, Behavior behavior) {
    steps.push_back(std::make_unique<SplitByCharacter>(std::move(is), behavior));
  };
  if (type == "ByteLevel") return read_byte_level(s, is_last, steps);
  if (type == "Metaspace") return read_metaspace(s, steps);
  if (type == "Sequence") return read_sequence(s, is_last, steps);
  if (type == "Split") {
    Pattern pattern = read_pattern(s);
    const Behavior behavior = read_behavior(s, std::nullopt);
    const bool invert = s.boolean("invert", false);
    steps.push_back(std::make_unique<Split>(std::move(pattern), behavior, invert));
    return;
  }
  if (type == "Digits") {
    const bool single = s.boolean("individual_digits", false);
    return by_character(is_number, single ? Behavior::isolated : Behavior::contiguous);
  }
  if (type == "Punctuation") return by_character(is_punctuation, read_behavior(s, "Isolated"));
  if (type == "WhitespaceSplit") return by_character(is_white_space, Behavior::removed);
  if (type == "CharDelimiterSplit") {
    const char32_t d = s.character("delimiter");
    return by_character([d](char32_t c) { return c == d; }, Behavior::removed);
  }
  if (type == "BertPreTokenizer") {
    by_character(is_white_space, Behavior::removed);
    return by_character(is_punctuation, Behavior::isolated);
  }
  if (type == "Whitespace") {
    // Here a word also holds the two joiners, as in Rust's regular expressions.
    steps.push_back(std::make_unique<Split>(
        Pattern::regex(R"([\w\u200c\u200d]+|[^\w\s\u200c\u200d]+)", s.where()), Behavior::removed,
        true));
    return;
  }
  s.error("type",
          "pre-tokenizer '{}' is not supported; supported are ByteLevel, Metaspace, Split, "
          "Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, "
          "BertPreTokenizer, Sequence",
          type);
}

void read_into(const json& value, const std::string& where, bool is_last, Steps& steps) {
  Section s(value, where);
  read_one(s, s.string("type"), is_last, steps);
  s.finish();
}

}  // namespace

PrependScheme read_prepend_scheme(Section& s) {
  const bool older = s.has("add_prefix_space") && !s.boolean("add_prefix_space");
  const std::string name = s.string("prepend_scheme", older ? "never" : "always");
  if (older && name != "never")
    s.error("prepend_scheme", "'{}' contradicts add_prefix_space false", name);
  if (name == "always") return PrependScheme::always;
  if (name == "first") return PrependScheme::first;
  if (name == "never") return PrependScheme::never;
  s.error("prepend_scheme", "unknown scheme '{}'; known are always, first, never", name);
}

Steps read_pre_tokenizer(const json& value, const std::string& where) {
  Steps steps;
  if (!value.is_null()) read_into(value, where, true, steps);
  return steps;
}

}  // namespace plait
