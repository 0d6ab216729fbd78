// Characters in UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plait {

// Length in bytes of the character whose first byte this is; the text must be valid.
inline size_t utf8_length(char first) {
  const auto b = static_cast<unsigned char>(first);
  return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

// The character at `position`, which must open a character of a valid text.
char32_t utf8_at(std::string_view text, size_t position);
void append_utf8(std::string& text, char32_t character);

// Valid UTF-8: every longest part that could have opened a character, but does not go on as one,
// becomes one U+FFFD (as Unicode recommends, and as Rust and Python do).
std::string replace_invalid_utf8(std::string_view text);

// Throws Error naming the offset of what is broken. `what` opens the message.
void require_utf8(std::string_view text, std::string_view what);

bool is_white_space(char32_t c);     // Unicode's White_Space
bool is_number(char32_t c);          // general category N
bool is_punctuation(char32_t c);     // general category P, or punctuation of ASCII
bool is_combining_mark(char32_t c);  // general category M

}  // namespace plait
