#include "plait/tokens/jinja/lexer.h"

#include <array>
#include <optional>

#include "plait/tokens/jinja/unicode.h"

namespace plait::jinja {

namespace {

bool is_digit_of(char c, int base) {
  if (c >= '0' && c <= '9') return c - '0' < base;
  return base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'));
}
bool opens_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::string with_plain_line_breaks(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
      continue;
    }
    out += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& source)
      : text_(with_plain_line_breaks(text)), source_(source) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) data();
    push(Token::Kind::end, "", text_.size());
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  bool here(std::string_view s) const { return rest().substr(0, s.size()) == s; }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }

  // Positions are asked for in ascending order, but for errors.
  Place place(size_t offset) {
    if (offset < known_offset_) {
      known_ = {};
      known_offset_ = 0;
    }
    while (known_offset_ < offset && known_offset_ < text_.size()) {
      if (next_character(text_, known_offset_) == '\n') {
        ++known_.line;
        known_.column = 1;
      } else {
        ++known_.column;
      }
    }
    return known_;
  }
  template <class... Args>
  [[noreturn]] void error(size_t offset, fmt::format_string<Args...> format, Args&&... args) {
    fail_at(source_, place(offset), format, std::forward<Args>(args)...);
  }
  void push(Token::Kind kind, std::string value, size_t offset) {
    tokens_.push_back({kind, std::move(value), place(offset)});
  }
  void skip_space() { at_ = text_.size() - strip_left(rest()).size(); }

  // Text up to a tag, then the tag.
  void data() {
    const size_t begin = at_;
    size_t tag = begin;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= text_.size()) {
        tag = text_.size();
        break;
      }
      const char next = text_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    std::string_view before = std::string_view(text_).substr(begin, tag - begin);
    if (tag == text_.size()) {
      if (!before.empty()) push(Token::Kind::data, std::string(before), begin);
      at_ = tag;
      return;
    }
    const char kind = text_[tag + 1];
    at_ = tag + 2;
    const char sign = peek() == '-' || peek() == '+' ? text_[at_++] : 0;
    before = stripped(before, sign, kind == '{', at_line_start(begin));
    if (!before.empty()) push(Token::Kind::data, std::string(before), begin);
    if (kind == '#')
      comment(tag);
    else if (kind == '%' && raw_opens())
      raw(tag);
    else
      code(tag, kind == '%');
  }

  bool at_line_start(size_t offset) const { return offset == 0 || text_[offset - 1] == '\n'; }

  // The text before a tag with this sign.
  static std::string_view stripped(std::string_view before, char sign, bool variable,
                                   bool line_start) {
    if (sign == '-') return strip_right(before);
    if (sign == '+' || variable) return before;
    const size_t line = before.rfind('\n') + 1;  // 0 where there is none
    if ((line > 0 || line_start) && strip_left(before.substr(line)).empty())
      return before.substr(0, line);
    return before;
  }

  void after_end(char sign, bool block) {
    if (sign == '-')
      skip_space();
    else if (sign != '+' && block && peek() == '\n')
      ++at_;
  }

  void comment(size_t tag) {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) error(tag, "this comment has no end '#}}'");
    const char sign =
        end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+') ? text_[end - 1] : 0;
    at_ = end + 2;
    after_end(sign, true);
  }

  // Behind "{%" and sign: is this {% raw %}? If so, moves behind it.
  bool raw_opens() {
    const size_t begin = at_;
    skip_space();
    if (here("raw")) {
      at_ += 3;
      skip_space();
      if (here("%}") || here("-%}")) {
        const bool strip = peek() == '-';
        at_ += strip ? 3 : 2;
        if (strip) skip_space();
        return true;
      }
    }
    at_ = begin;
    return false;
  }

  void raw(size_t tag) {
    const size_t begin = at_;
    for (size_t end = begin;; ++end) {
      end = text_.find("{%", end);
      if (end == std::string::npos) error(tag, "this raw block has no {{% endraw %}}");
      at_ = end + 2;
      const char sign = peek() == '-' || peek() == '+' ? text_[at_++] : 0;
      skip_space();
      if (!here("endraw")) continue;
      at_ += 6;
      skip_space();
      const char last = peek() == '-' || peek() == '+' ? text_[at_++] : 0;
      if (!here("%}")) continue;
      at_ += 2;
      const std::string_view body = stripped(std::string_view(text_).substr(begin, end - begin),
                                             sign, false, at_line_start(begin));
      if (!body.empty()) push(Token::Kind::data, std::string(body), begin);
      after_end(last, true);
      return;
    }
  }

  // Tokens up to the end of the tag.
  void code(size_t tag, bool block) {
    push(block ? Token::Kind::block_begin : Token::Kind::variable_begin, "", tag);
    const std::string_view close = block ? "%}" : "}}";
    open_.clear();
    while (true) {
      skip_space();
      if (at_ >= text_.size()) error(tag, "this tag has no end '{}'", close);
      const size_t begin = at_;
      const char sign = peek() == '-' || (block && peek() == '+') ? peek() : 0;
      if (open_.empty() && rest().substr(sign != 0 ? 1 : 0, 2) == close) {
        at_ += sign != 0 ? 3 : 2;
        push(block ? Token::Kind::block_end : Token::Kind::variable_end, "", begin);
        after_end(sign, block);
        return;
      }
      token();
    }
  }

  void token() {
    const char c = peek();
    if (c >= '0' && c <= '9')
      number();
    else if (opens_name(c))
      name();
    else if (c == '\'' || c == '"')
      quoted();
    else
      op();
  }

  void name() {
    const size_t begin = at_;
    while (opens_name(peek()) || is_digit_of(peek(), 10)) ++at_;
    push(Token::Kind::name, text_.substr(begin, at_ - begin), begin);
  }

  // Digits with single underscores between them; without the underscores.
  std::string digits(int base) {
    std::string all;
    while (is_digit_of(peek(), base) || (peek() == '_' && is_digit_of(peek(1), base))) {
      if (peek() != '_') all += peek();
      ++at_;
    }
    return all;
  }

  void number() {
    const size_t begin = at_;
    const char letter = static_cast<char>(peek(1) | 0x20);
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (peek() == '0' && base != 10 && (is_digit_of(peek(2), base) || peek(2) == '_')) {
      at_ += 2;
      if (peek() == '_') ++at_;
      return integer(begin, digits(base), base);
    }
    std::string all = digits(10);
    bool real = false;
    const bool behind_dot = begin > 0 && text_[begin - 1] == '.';
    if (!behind_dot && peek() == '.' && is_digit_of(peek(1), 10)) {
      real = true;
      ++at_;
      all += "." + digits(10);
    }
    const size_t sign = peek(1) == '+' || peek(1) == '-' ? 2 : 1;
    if (!behind_dot && (peek() | 0x20) == 'e' && is_digit_of(peek(sign), 10)) {
      real = true;
      all += text_.substr(at_, sign);
      at_ += sign;
      all += digits(10);
    }
    if (real) return push(Token::Kind::real, all, begin);
    if (all.size() > 1 && all[0] == '0' && all.find_first_not_of('0') != std::string::npos)
      error(begin, "a number with a 0 in front");
    integer(begin, all, 10);
  }

  void integer(size_t begin, const std::string& all, int base) {
    int64_t value = 0;
    for (const char c : all) {
      const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
      if (__builtin_mul_overflow(value, int64_t{base}, &value) ||
          __builtin_add_overflow(value, int64_t{digit}, &value))
        error(begin, "a number of more than 64 bits");
    }
    push(Token::Kind::integer, std::to_string(value), begin);
  }

  void quoted() {
    const size_t begin = at_;
    const char quote = text_[at_++];
    std::string value;
    while (true) {
      if (at_ >= text_.size()) error(begin, "this string has no end");
      const char c = text_[at_++];
      if (c == quote) break;
      if (c == '\\')
        escape(value, begin);
      else
        value += c;
    }
    push(Token::Kind::text, std::move(value), begin);
  }

  // Behind a backslash; what Python's string literals do.
  void escape(std::string& value, size_t begin) {
    if (at_ >= text_.size()) error(begin, "this string has no end");
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    const size_t start = at_ - 1;
    const char c = text_[at_++];
    const size_t place = kFrom.find(c);
    if (c == '\n') return;
    if (place != std::string_view::npos) {
      value += kTo[place];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_checked(value, hex(c == 'x' ? 2 : c == 'u' ? 4 : 8, start), start);
    } else if (c >= '0' && c <= '7') {
      uint32_t code = static_cast<uint32_t>(c - '0');
      for (int i = 0; i < 2 && is_digit_of(peek(), 8); ++i)
        code = code * 8 + static_cast<uint32_t>(text_[at_++] - '0');
      append_checked(value, code, start);
    } else if (c == 'N' || (c & 0x80) != 0) {
      error(start, "this escape in a string is not supported");
    } else {
      value += '\\';
      value += c;
    }
  }
  uint32_t hex(int count, size_t start) {
    uint32_t code = 0;
    for (int i = 0; i < count; ++i) {
      if (!is_digit_of(peek(), 16)) error(start, "this escape needs {} hexadecimal digits", count);
      const char c = text_[at_++];
      code = code << 4 | static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return code;
  }
  void append_checked(std::string& value, uint32_t code, size_t start) {
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      error(start, "this escape names no character");
    append_utf8(value, code);
  }

  void op() {
    static constexpr std::array<std::string_view, 26> kAll = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const size_t begin = at_;
    for (const std::string_view s : kAll) {
      if (!here(s)) continue;
      at_ += s.size();
      balance(s[0], begin);
      return push(Token::Kind::op, std::string(s), begin);
    }
    size_t end = at_;
    next_character(text_, end);
    error(begin, "unexpected character '{}'", text_.substr(begin, end - begin));
  }

  // Within brackets, "}}" closes dicts and no tag.
  void balance(char c, size_t begin) {
    if (c == '(' || c == '[' || c == '{') open_ += c;
    if (c != ')' && c != ']' && c != '}') return;
    const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (open_.empty() || open_.back() != wanted) error(begin, "unexpected '{}'", c);
    open_.pop_back();
  }

  std::string text_;
  const std::string& source_;
  size_t at_ = 0;
  Place known_;
  size_t known_offset_ = 0;
  std::string open_;  // brackets
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view text, const std::string& source) {
  return Lexer(text, source).run();
}

}  // namespace plait::jinja
