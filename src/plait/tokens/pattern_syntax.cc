// to_pcre: the syntax of Oniguruma, as far as it is known to mean the same in PCRE2 or can be
// rewritten. References: doc/RE of Oniguruma, pcre2pattern(3).
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "plait/base/error.h"
#include "plait/tokens/pattern.h"
#include "plait/tokens/utf8.h"

namespace plait {

namespace {

constexpr std::string_view kSpace = R"(\p{White_Space})", kNotSpace = R"(\P{White_Space})";
// A word character of Oniguruma; PCRE2's \w has no marks and no connectors.
constexpr std::string_view kWordSet = R"(\p{Alphabetic}\p{M}\p{N}\p{Pc})";

// General categories, and the scripts that tokenizers split on; lower case, as they are compared.
constexpr std::array kCategories = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me",
                                    "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi",
                                    "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl",
                                    "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Cs"};
constexpr std::array kLongCategories = {std::pair{"letter", "L"},
                                        std::pair{"uppercaseletter", "Lu"},
                                        std::pair{"lowercaseletter", "Ll"},
                                        std::pair{"titlecaseletter", "Lt"},
                                        std::pair{"modifierletter", "Lm"},
                                        std::pair{"otherletter", "Lo"},
                                        std::pair{"mark", "M"},
                                        std::pair{"number", "N"},
                                        std::pair{"decimalnumber", "Nd"},
                                        std::pair{"punctuation", "P"},
                                        std::pair{"symbol", "S"},
                                        std::pair{"separator", "Z"},
                                        std::pair{"other", "C"}};
constexpr std::array kScripts = {
    "Arabic",  "Armenian", "Bengali",  "Cyrillic", "Devanagari", "Ethiopic",  "Georgian",
    "Greek",   "Gujarati", "Gurmukhi", "Han",      "Hangul",     "Hebrew",    "Hiragana",
    "Kannada", "Katakana", "Khmer",    "Lao",      "Latin",      "Malayalam", "Myanmar",
    "Oriya",   "Sinhala",  "Tamil",    "Telugu",   "Thai",       "Tibetan"};

std::string plain(std::string_view name) {
  std::string result;
  for (const char c : name)
    if (c != ' ' && c != '_' && c != '-')
      result.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  return result;
}

// The PCRE2 name of a property; nothing when it is not known to mean the same.
std::optional<std::string> property(std::string_view name) {
  const std::string p = plain(name);
  for (const char* c : kCategories)
    if (p == plain(c)) return c;
  for (const auto& [long_name, c] : kLongCategories)
    if (p == long_name) return c;
  for (const char* s : kScripts)
    if (p == plain(s)) return "sc:" + std::string(s);
  if (p == "alphabetic") return "Alphabetic";
  if (p == "whitespace" || p == "space") return "White_Space";
  return std::nullopt;
}

class Rewriter {
 public:
  Rewriter(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  std::string run() {
    require_utf8(in_, where_);
    while (at_ < in_.size()) step();
    if (!open_.empty()) refuse("a parenthesis that is not closed");
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail("{}: the regular expression '{}' is not supported: {} at offset {}", where_, in_, what,
         at_);
  }
  bool next_is(std::string_view words) const { return in_.substr(at_).starts_with(words); }
  char peek() const { return at_ < in_.size() ? in_[at_] : '\0'; }

  void atom(std::string_view text) {
    atom_ = out_.size();
    have_atom_ = true;
    out_ += text;
  }

  void step() {
    const char c = in_[at_];
    if (c == '\\') return escape();
    if (c == '[') return atom_class();
    if (c == '(') return open_group();
    if (c == ')') return close_group();
    if (c == '*' || c == '+' || c == '?') return repeat();
    if (c == '{') return interval();
    if (c == '|') {
      out_ += c;
      ++at_;
      have_atom_ = false;
      return;
    }
    if (c == '^' || c == '$') {
      atom(std::string(1, c));
      ++at_;
      have_atom_ = false;
      return;
    }
    const size_t length = utf8_length(c);
    atom(in_.substr(at_, length));
    at_ += length;
  }

  // ---- groups

  void open_group() {
    static constexpr std::array kinds = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    std::string_view opening = "(";
    if (next_is("(?")) {
      opening = "";
      for (const std::string_view k : kinds)
        if (next_is(k)) opening = k;
      if (opening.empty()) {
        if (!next_is("(?i)")) refuse("a group of this kind");
        // For the rest of the enclosing group, in both libraries; alternatives differ.
        if (at_ != 0) refuse("(?i) inside an expression");
        out_ += "(?i)";
        at_ += 4;
        return;
      }
    }
    if (next_is("(*")) refuse("a verb");
    if (open_.size() > 40) refuse("groups nested more than 40 deep");
    open_.push_back(out_.size());
    out_ += opening == "(" ? "(?:" : opening;
    at_ += opening.size();
    have_atom_ = false;
  }

  void close_group() {
    if (open_.empty()) refuse("a parenthesis that was not opened");
    atom_ = open_.back();
    open_.pop_back();
    out_ += ')';
    ++at_;
    have_atom_ = true;
  }

  // ---- repetition

  void repeat() {
    if (!have_atom_) refuse("a repetition of nothing");
    out_ += in_[at_++];
    if (peek() == '?' || peek() == '+') out_ += in_[at_++];  // lazy, possessive: as in PCRE2
    wrap_if_repeated();
  }

  // "{n}", "{n,}", "{n,m}", "{,m}"; anything else is a literal brace. "{n,m}+" is a repetition
  // of the repetition, where PCRE2 would read a possessive one.
  void interval() {
    const size_t close = in_.find('}', at_);
    const std::string_view body =
        close == in_.npos ? std::string_view() : in_.substr(at_ + 1, close - at_ - 1);
    const size_t comma = body.find(',');
    const std::string low(body.substr(0, comma));
    const std::string high(comma == body.npos ? "" : body.substr(comma + 1));
    const auto digits = [](std::string_view s) {
      return s.size() <= 4 && s.find_first_not_of("0123456789") == s.npos;
    };
    if (close == in_.npos || !digits(low) || !digits(high) || (low.empty() && high.empty())) {
      atom("\\{");
      ++at_;
      return;
    }
    if (!have_atom_) refuse("a repetition of nothing");
    if (comma != body.npos && !high.empty() && !low.empty() && std::stoi(low) > std::stoi(high))
      refuse("an interval whose end is below its start");
    out_ += "{" + (low.empty() ? "0" : low);
    if (comma != body.npos) out_ += "," + high;
    out_ += "}";
    at_ = close + 1;
    if (peek() == '?') {
      if (comma == body.npos) refuse("'{n}?'");  // optional here, lazy in PCRE2
      out_ += in_[at_++];
    }
    wrap_if_repeated();
  }

  void wrap_if_repeated() {
    const char c = peek();
    if (c != '+' && c != '*' && c != '?' && c != '{') return;
    if (c == '{') refuse("a repetition of a repetition");
    out_.insert(atom_, "(?:");
    out_ += ')';
  }

  // ---- escapes

  void escape() {
    if (at_ + 1 >= in_.size()) refuse("a backslash at the end");
    const char c = in_[at_ + 1];
    if (c == 's') return replace(kSpace);
    if (c == 'S') return replace(kNotSpace);
    if (c == 'w') return replace("[" + std::string(kWordSet) + "]");
    if (c == 'W') return replace("[^" + std::string(kWordSet) + "]");
    if (c == 'A' || c == 'z') {
      out_ += in_.substr(at_, 2);
      at_ += 2;
      have_atom_ = false;
      return;
    }
    if (c == 'b' || c == 'B') return boundary(c == 'b');
    atom(shared_escape());
  }

  void replace(std::string_view text) {
    atom(text);
    at_ += 2;
  }

  void boundary(bool is) {
    const std::string w = "[" + std::string(kWordSet) + "]";
    atom(is ? "(?:(?<=" + w + ")(?!" + w + ")|(?<!" + w + ")(?=" + w + "))"
            : "(?:(?<=" + w + ")(?=" + w + ")|(?<!" + w + ")(?!" + w + "))");
    at_ += 2;
    have_atom_ = false;
  }

  // Escapes that mean the same inside and outside a class; moves past them.
  std::string shared_escape() {
    const char c = in_[at_ + 1];
    if (c == 'p' || c == 'P') return property_escape();
    if (c == 'x') return hex();
    if (c == 'u') {
      const std::string_view digits = in_.substr(at_ + 2, 4);
      if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos)
        refuse("\\u without four digits");
      at_ += 6;
      return "\\x{" + std::string(digits) + "}";
    }
    if (std::string_view("rntfvaedD").find(c) != std::string_view::npos) {
      const std::string e = c == 'v' ? "\\x0b" : std::string(in_.substr(at_, 2));
      at_ += 2;
      return e;
    }
    if (static_cast<unsigned char>(c) >= 0x80) {
      const std::string e(in_.substr(at_ + 1, utf8_length(c)));
      at_ += 1 + e.size();
      return e;
    }
    if (std::isalnum(static_cast<unsigned char>(c))) refuse("an escape of this kind");
    const std::string e(in_.substr(at_, 2));
    at_ += 2;
    return e;
  }

  std::string hex() {
    size_t begin = at_ + 2, end = begin;
    const bool braces = begin < in_.size() && in_[begin] == '{';
    if (braces) end = ++begin;
    const size_t most = braces ? 8 : 2;
    while (end < in_.size() && end - begin < most &&
           std::isxdigit(static_cast<unsigned char>(in_[end])) != 0)
      ++end;
    const std::string digits(in_.substr(begin, end - begin));
    if (digits.empty() || (braces && (end >= in_.size() || in_[end] != '}'))) refuse("\\x");
    if (!braces && std::stoul(digits, nullptr, 16) > 0x7f) refuse("a byte that is no character");
    at_ = end + (braces ? 1 : 0);
    return "\\x{" + digits + "}";
  }

  std::string property_escape() {
    bool negated = in_[at_ + 1] == 'P';
    std::string_view name;
    size_t end = at_ + 3;
    if (at_ + 2 < in_.size() && in_[at_ + 2] == '{') {
      const size_t close = in_.find('}', at_);
      if (close == in_.npos) refuse("a property without '}'");
      name = in_.substr(at_ + 3, close - at_ - 3);
      end = close + 1;
    } else {
      // Oniguruma wants braces; "\pL" is there only by a syntax that nobody uses here.
      refuse("a property without braces");
    }
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::optional<std::string> pcre = property(name);
    if (!pcre) refuse("the property '" + std::string(name) + "'");
    at_ = end;
    return (negated ? "\\P{" : "\\p{") + *pcre + "}";
  }

  // ---- classes

  void atom_class() { atom(character_class(0)); }

  std::string character_class(int depth) {
    if (depth > 4) refuse("classes nested more than 4 deep");
    ++at_;  // [
    const bool negated = peek() == '^';
    if (negated) ++at_;
    std::string items, conditions;
    bool first = true, merged = false;
    while (true) {
      if (at_ >= in_.size()) refuse("a class that is not closed");
      if (peek() == ']' && !first) break;
      if (peek() == ']') refuse("an empty class");
      if (next_is("&&")) {
        at_ += 2;
        if (peek() != '[') refuse("'&&' before something that is no class");
        conditions += "(?=" + character_class(depth + 1) + ")";
        merged = true;
        continue;
      }
      if (merged) refuse("items behind '&&[..]'");
      if (peek() == '[') refuse("a class within a class");
      items += class_item();
      first = false;
    }
    ++at_;  // ]
    if (merged && negated) refuse("'&&' in a negated class");
    const std::string own = (negated ? "[^" : "[") + items + "]";
    return merged ? "(?:" + conditions + own + ")" : own;
  }

  std::string class_item() {
    const char c = peek();
    if (c == '\\') {
      if (at_ + 1 >= in_.size()) refuse("a backslash at the end");
      const char e = in_[at_ + 1];
      if (e == 's' || e == 'S' || e == 'w') {
        at_ += 2;
        return std::string(e == 's' ? kSpace : e == 'S' ? kNotSpace : kWordSet);
      }
      if (e == 'W') refuse("\\W in a class");
      if (e == 'b') refuse("\\b in a class");
      return shared_escape();
    }
    const size_t length = utf8_length(c);
    const std::string item(in_.substr(at_, length));
    at_ += length;
    return item;
  }

  std::string_view in_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;  // where the last atom starts in out_
  bool have_atom_ = false;
  std::vector<size_t> open_;  // where each open group starts in out_
};

}  // namespace

std::string to_pcre(std::string_view expression, const std::string& where) {
  return Rewriter(expression, where).run();
}

}  // namespace plait
