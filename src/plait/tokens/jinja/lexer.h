// Text of a template to tokens, with Jinja's rules of white space as chat templates are rendered
// everywhere: trim_blocks (a line break behind a block tag is dropped) and lstrip_blocks (white
// space before a block tag that opens a line is dropped), `-` and `+` in tags, one line break at
// the very end dropped, line breaks of any kind read as \n.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plait/base/error.h"

namespace plait::jinja {

struct Place {
  int line = 1, column = 1;  // columns count characters
};

struct Token {
  enum class Kind {
    data,
    block_begin,
    block_end,
    variable_begin,
    variable_end,
    name,
    text,
    integer,
    real,
    op,
    end
  };
  Kind kind = Kind::end;
  std::string value;  // of a text: with its escapes replaced
  Place at;
};

// Throws Error "SOURCE:LINE:COLUMN: ...".
template <class... Args>
[[noreturn]] void fail_at(const std::string& source, Place at, fmt::format_string<Args...> format,
                          Args&&... args) {
  fail("{}:{}:{}: {}", source, at.line, at.column,
       fmt::format(format, std::forward<Args>(args)...));
}

std::vector<Token> lex(std::string_view text, const std::string& source);

}  // namespace plait::jinja
