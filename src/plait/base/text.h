// The lexer under plait's text formats (model IR, programs): words, numbers, quoted strings and
// punctuation, line by line, with positions for errors. `#` starts a comment.
//
//   Lexer in(text, "model.plait");
//   in.expect("model");  std::string name = in.word();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plait/base/error.h"

namespace plait {

class Lexer {
 public:
  Lexer(std::string_view text, std::string source);

  bool at_end();                        // nothing but space and comments is left
  bool at_line_end();                   // nothing but space and comments is left on this line
  std::string_view peek();              // the next token, empty at the end
  std::string_view next();              // takes a token; throws at the end
  bool accept(std::string_view token);  // takes it if it is the next one
  void expect(std::string_view token);
  std::string word();  // [A-Za-z_][A-Za-z0-9_.-]*, or a quoted string
  int64_t integer(int64_t low, int64_t high);
  double number();
  void end_line();  // throws if the line holds more

  template <class... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) {
    fail("{}:{}: {}", source_, line_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void skip();
  std::string_view text_;
  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool have_ = false;
  bool new_line_ = true;  // the pending token is the first of its line
  std::string_view token_;
};

// Shortest text of a double that parses back to the same bits.
std::string number_text(double value);
// 1234567 -> "1.2 MB" and the like, for people.
std::string bytes_text(int64_t bytes);

}  // namespace plait
