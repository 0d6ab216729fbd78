#include "plait/tokens/byte_level.h"

#include <array>

#include "plait/tokens/utf8.h"

namespace plait {

namespace {

struct Table {
  std::array<char32_t, 256> character{};
  std::array<int, 324> byte{};
  Table() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool visible =
          (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
      const char32_t c = visible ? static_cast<char32_t>(b) : next++;
      character[static_cast<size_t>(b)] = c;
      byte[c] = b;
    }
  }
};

const Table& table() {
  static const Table t;
  return t;
}

}  // namespace

char32_t byte_character(unsigned char byte) { return table().character[byte]; }

std::optional<unsigned char> character_byte(char32_t c) {
  if (c >= table().byte.size() || table().byte[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(table().byte[c]);
}

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 4);
  for (const char b : bytes) append_utf8(text, byte_character(static_cast<unsigned char>(b)));
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += utf8_length(text[i])) {
    const auto b = character_byte(utf8_at(text, i));
    if (!b) return std::nullopt;
    bytes.push_back(static_cast<char>(*b));
  }
  return bytes;
}

}  // namespace plait
