// The 256 bytes as printable characters, as GPT-2's vocabulary writes them: visible Latin-1
// characters stand for themselves, the other 68 bytes, in order, for U+0100 and on ("Ġ" is a
// space, "Ċ" a line feed).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plait {

char32_t byte_character(unsigned char byte);
std::optional<unsigned char> character_byte(char32_t character);

std::string to_byte_level(std::string_view bytes);
// Nothing when a character stands for no byte. `text` must be valid UTF-8.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace plait
