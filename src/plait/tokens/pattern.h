// Patterns of tokenizer.json: literal strings, and regular expressions in Oniguruma's syntax
// (what Hugging Face's library uses), run by PCRE2.
//
//   const Pattern words = Pattern::regex(R"(\s?\p{L}+)", "tokenizer.json: pre_tokenizer");
//   words.each_match(text, [&](size_t begin, size_t end) { ... });
//
// The two libraries differ in what \s, \w, ^, $, \p{Han}, {n,m}+ and [..&&..] mean: the pattern is
// rewritten so that PCRE2 matches what Oniguruma would. What cannot be rewritten is refused.
// A pattern that takes out of all proportion to the text is an error, not a hang.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace plait {

class Pattern {
 public:
  static Pattern literal(std::string text);
  // `where` opens the message when the expression is refused.
  static Pattern regex(std::string_view expression, const std::string& where);

  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // Calls visit(begin, end) for every match in `text` (valid UTF-8), left to right, not
  // overlapping. A match may be empty.
  void each_match(std::string_view text, const std::function<void(size_t, size_t)>& visit) const;

  bool is_literal() const { return regex_ == nullptr; }

 private:
  struct Regex;
  Pattern();
  std::string text_;  // the literal, or the expression as it was given
  std::unique_ptr<Regex> regex_;
};

// The value "pattern" of a tokenizer.json: {"String": text} or {"Regex": expression}.
class Section;
Pattern read_pattern(Section& s);

// Oniguruma's syntax to PCRE2's; throws Error for what cannot be said.
std::string to_pcre(std::string_view expression, const std::string& where);

}  // namespace plait
