#include "plait/base/text.h"

#include <cctype>
#include <charconv>

namespace plait {

namespace {
bool word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool word_part(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' ||
         c == '+' || c == '@' || c == '*';
}
}  // namespace

Lexer::Lexer(std::string_view text, std::string source) : text_(text), source_(std::move(source)) {}

void Lexer::skip() {
  if (have_) return;
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '\n') {
      ++line_;
      new_line_ = true;
      ++position_;
    } else if (c == '#') {
      while (position_ < text_.size() && text_[position_] != '\n') ++position_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++position_;
    } else {
      break;
    }
  }
  const size_t start = position_;
  if (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '"') {
      ++position_;
      while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\n')
        ++position_;
      if (position_ >= text_.size() || text_[position_] != '"') error("string without an end");
      ++position_;
    } else if (word_part(c)) {
      while (position_ < text_.size() && word_part(text_[position_])) ++position_;
    } else {
      ++position_;
    }
  }
  token_ = text_.substr(start, position_ - start);
  have_ = true;
}

bool Lexer::at_end() { return peek().empty(); }

bool Lexer::at_line_end() {
  skip();
  return token_.empty() || new_line_;
}

std::string_view Lexer::peek() {
  skip();
  return token_;
}

std::string_view Lexer::next() {
  skip();
  if (token_.empty()) error("the text ends too early");
  have_ = false;
  new_line_ = false;
  return token_;
}

bool Lexer::accept(std::string_view token) {
  if (peek() != token) return false;
  next();
  return true;
}

void Lexer::expect(std::string_view token) {
  const std::string_view found = next();
  if (found != token) error("found '{}', expected '{}'", found, token);
}

std::string Lexer::word() {
  const std::string_view t = next();
  if (t.front() == '"') return std::string(t.substr(1, t.size() - 2));
  if (!word_start(t.front())) error("found '{}', expected a name", t);
  return std::string(t);
}

int64_t Lexer::integer(int64_t low, int64_t high) {
  const std::string_view t = next();
  int64_t v = 0;
  const auto r = std::from_chars(t.data(), t.data() + t.size(), v);
  if (r.ec != std::errc{} || r.ptr != t.data() + t.size())
    error("found '{}', expected a number", t);
  if (v < low || v > high) error("{} is outside {} to {}", v, low, high);
  return v;
}

double Lexer::number() {
  const std::string_view t = next();
  double v = 0;
  const auto r = std::from_chars(t.data(), t.data() + t.size(), v);
  if (r.ec != std::errc{} || r.ptr != t.data() + t.size())
    error("found '{}', expected a number", t);
  return v;
}

void Lexer::end_line() {
  if (!at_line_end()) error("'{}' is too much on this line", peek());
}

std::string number_text(double value) { return fmt::format("{}", value); }

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double v = static_cast<double>(bytes);
  int unit = 0;
  while (v >= 999.95 && unit < 5) {
    v /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", v, kUnits[unit]);
}

}  // namespace plait
