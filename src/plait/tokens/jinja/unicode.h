// Characters of Python strings: counting and slicing by character, white space, letter case.
// Texts are valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plait/tokens/utf8.h"

namespace plait::jinja {

int64_t count_characters(std::string_view text);
// Offset in bytes of character `index`; the text's size at or behind the end.
size_t offset_of(std::string_view text, int64_t index);
// The character that begins at `position`, which is moved behind it.
char32_t next_character(std::string_view text, size_t& position);
std::vector<std::string> split_characters(std::string_view text);
bool is_ascii(std::string_view text);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable
bool is_letter(char32_t c);     // str.isalpha
bool is_digit(char32_t c);      // str.isdigit
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title
std::string to_capitalized(std::string_view text);  // str.capitalize

std::string_view strip_left(std::string_view text);  // white space
std::string_view strip_right(std::string_view text);

}  // namespace plait::jinja
