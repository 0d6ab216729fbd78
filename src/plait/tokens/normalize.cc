#include "plait/tokens/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "plait/base/error.h"
#include "plait/tokens/byte_level.h"
#include "plait/tokens/json_section.h"
#include "plait/tokens/newer_characters.h"
#include "plait/tokens/pattern.h"
#include "plait/tokens/utf8.h"

namespace plait {

using nlohmann::json;

namespace {

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

void decompose(char32_t c, bool compatible, std::vector<utf8proc_int32_t>& out) {
  if (is_unknown_to_normalizer(c)) return out.push_back(static_cast<utf8proc_int32_t>(c));
  utf8proc_int32_t buffer[32];
  const int options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t n =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, 32,
                              static_cast<utf8proc_option_t>(options), nullptr);
  PLAIT_CHECK(n > 0 && n <= 32, "decomposition of U+{:04X}", static_cast<uint32_t>(c));
  out.insert(out.end(), buffer, buffer + n);
}

int combining_class(utf8proc_int32_t c) {
  const int k = utf8proc_get_property(c)->combining_class;
  return k != 0 && is_unknown_to_normalizer(static_cast<char32_t>(c)) ? 0 : k;
}

// Canonical order: runs of marks sorted by class. (The library's own sort is quadratic.)
void order_marks(std::vector<utf8proc_int32_t>& text) {
  for (size_t i = 0; i < text.size();) {
    if (combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<ptrdiff_t>(i),
                     text.begin() + static_cast<ptrdiff_t>(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

// Character by character between those that are unknown, which join nothing.
void compose(std::vector<utf8proc_int32_t>& text) {
  size_t kept = 0;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && !is_unknown_to_normalizer(static_cast<char32_t>(text[end]))) ++end;
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(
        text.data() + i, static_cast<utf8proc_ssize_t>(end - i),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    PLAIT_CHECK(n >= 0, "composition failed");
    std::copy_n(text.begin() + static_cast<ptrdiff_t>(i), n,
                text.begin() + static_cast<ptrdiff_t>(kept));
    kept += static_cast<size_t>(n);
    if (end < text.size()) text[kept++] = text[end++];
    i = end;
  }
  text.resize(kept);
}

void normalize_part(std::string_view part, UnicodeForm form, std::string& out) {
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  std::vector<utf8proc_int32_t> text;
  for (size_t i = 0; i < part.size(); i += utf8_length(part[i]))
    decompose(utf8_at(part, i), compatible, text);
  order_marks(text);
  if (form == UnicodeForm::nfc || form == UnicodeForm::nfkc) compose(text);
  for (const utf8proc_int32_t c : text) append_utf8(out, static_cast<char32_t>(c));
}

}  // namespace

std::string unicode_normalized(std::string_view text, UnicodeForm form) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_ascii(text[end])) ++end;
    if (end == text.size()) {
      out.append(text.substr(i));
      break;
    }
    // ASCII stays as it is, but its last character may take the marks that follow; and no ASCII
    // character joins what stands before it.
    const size_t begin = end > i ? end - 1 : end;
    out.append(text.substr(i, begin - i));
    while (end < text.size() && !is_ascii(text[end])) ++end;
    normalize_part(text.substr(begin, end - begin), form, out);
    i = end;
  }
  return out;
}

namespace {

class Unicode final : public Normalizer {
 public:
  explicit Unicode(UnicodeForm form) : form_(form) {}
  std::string apply(std::string text) const override {
    if (std::all_of(text.begin(), text.end(), is_ascii)) return text;
    return unicode_normalized(text, form_);
  }

 private:
  UnicodeForm form_;
};

class Lowercase final : public Normalizer {
 public:
  std::string apply(std::string text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size(); i += utf8_length(text[i])) {
      const char32_t c = utf8_at(text, i);
      if (c == 0x130)  // the one character whose lower case is two
        out += "i\xcc\x87";
      else if (const char32_t lower = lower_case_since_unicode_15(c); lower != 0)
        append_utf8(out, lower);
      else
        append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))));
    }
    return out;
  }
};

class StripAccents final : public Normalizer {
 public:
  std::string apply(std::string text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size(); i += utf8_length(text[i]))
      if (!is_combining_mark(utf8_at(text, i))) out.append(text, i, utf8_length(text[i]));
    return out;
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  std::string apply(std::string text) const override {
    size_t begin = 0, end = text.size();
    if (left_)
      while (begin < end && is_white_space(utf8_at(text, begin))) begin += utf8_length(text[begin]);
    while (right_ && end > begin) {
      size_t last = end - 1;
      while ((static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) --last;
      if (!is_white_space(utf8_at(text, last))) break;
      end = last;
    }
    return text.substr(begin, end - begin);
  }
  bool drops_start(std::string_view text) const override {
    return left_ && !text.empty() && is_white_space(utf8_at(text, 0));
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  std::string apply(std::string text) const override { return text.empty() ? text : text_ + text; }

 private:
  std::string text_;
};

class Replace final : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::string apply(std::string text) const override {
    std::string out;
    size_t done = 0;
    pattern_.each_match(text, [&](size_t begin, size_t end) {
      out.append(text, done, begin - done);
      out += content_;
      done = end;
    });
    if (done == 0 && out.empty()) return text;
    return out.append(text, done);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class ByteLevelText final : public Normalizer {
 public:
  std::string apply(std::string text) const override { return to_byte_level(text); }
};

class Chain final : public Normalizer {
 public:
  explicit Chain(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  std::string apply(std::string text) const override {
    for (const auto& p : parts_) text = p->apply(std::move(text));
    return text;
  }
  bool drops_start(std::string_view text) const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [&](const auto& p) { return p->drops_start(text); });
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

std::unique_ptr<Normalizer> read_chain(Section& s) {
  std::vector<std::unique_ptr<Normalizer>> parts;
  const json& list = s.array("normalizers");
  for (size_t i = 0; i < list.size(); ++i) {
    auto part = read_normalizer(list[i], fmt::format("{}[{}]", s.where("normalizers"), i));
    if (part != nullptr) parts.push_back(std::move(part));
  }
  return std::make_unique<Chain>(std::move(parts));
}

std::unique_ptr<Normalizer> read_one(Section& s, const std::string& type) {
  if (type == "NFC") return std::make_unique<Unicode>(UnicodeForm::nfc);
  if (type == "NFD") return std::make_unique<Unicode>(UnicodeForm::nfd);
  if (type == "NFKC") return std::make_unique<Unicode>(UnicodeForm::nfkc);
  if (type == "NFKD") return std::make_unique<Unicode>(UnicodeForm::nfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Strip") {
    const bool left = s.boolean("strip_left"), right = s.boolean("strip_right");
    return std::make_unique<Strip>(left, right);
  }
  if (type == "Prepend") return std::make_unique<Prepend>(s.string("prepend"));
  if (type == "Replace") {
    Pattern pattern = read_pattern(s);
    return std::make_unique<Replace>(std::move(pattern), s.string("content"));
  }
  if (type == "ByteLevel") return std::make_unique<ByteLevelText>();
  if (type == "Sequence") return read_chain(s);
  s.error("type",
          "normalizer '{}' is not supported; supported are NFC, NFD, NFKC, NFKD, Lowercase, "
          "StripAccents, Strip, Prepend, Replace, ByteLevel, Sequence",
          type);
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const json& value, const std::string& where) {
  if (value.is_null()) return nullptr;
  Section s(value, where);
  auto result = read_one(s, s.string("type"));
  s.finish();
  return result;
}

}  // namespace plait
