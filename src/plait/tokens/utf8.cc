#include "plait/tokens/utf8.h"

#include <utf8proc.h>

#include <array>

#include "plait/base/error.h"
#include "plait/tokens/tokenizer.h"

namespace plait {

namespace {

struct Sequence {
  size_t length = 1;  // of the longest part that could open a character
  bool valid = false;
};

// The table of well-formed sequences of the Unicode standard (3.9, table 3-7).
Sequence sequence_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {1, true};
  if (first < 0xc2 || first > 0xf4) return {1, false};
  const size_t wanted = utf8_length(text[at]);
  unsigned char low = 0x80, high = 0xbf;  // of the second byte
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  for (size_t i = 1; i < wanted; ++i) {
    if (at + i >= text.size() || byte(at + i) < low || byte(at + i) > high) return {i, false};
    low = 0x80;
    high = 0xbf;
  }
  return {wanted, true};
}

int category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Sequence s = sequence_at(text, i);
    if (!s.valid) return i;
    i += s.length;
  }
  return std::nullopt;
}

char32_t utf8_at(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  const char32_t first = byte(0);
  if (first < 0x80) return first;
  if (first < 0xe0) return (first & 0x1f) << 6 | (byte(1) & 0x3f);
  if (first < 0xf0) return (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  return (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
}

void append_utf8(std::string& text, char32_t c) {
  const auto push = [&](char32_t bits) { text.push_back(static_cast<char>(bits)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xc0 | c >> 6);
    push(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    push(0xe0 | c >> 12);
    push(0x80 | (c >> 6 & 0x3f));
    push(0x80 | (c & 0x3f));
  } else {
    push(0xf0 | c >> 18);
    push(0x80 | (c >> 12 & 0x3f));
    push(0x80 | (c >> 6 & 0x3f));
    push(0x80 | (c & 0x3f));
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Sequence s = sequence_at(text, i);
    if (s.valid)
      result.append(text.substr(i, s.length));
    else
      result.append("\xef\xbf\xbd");
    i += s.length;
  }
  return result;
}

void require_utf8(std::string_view text, std::string_view what) {
  const std::optional<size_t> at = find_invalid_utf8(text);
  if (at)
    fail(
        "{}: byte {:#04x} at offset {} is not valid UTF-8; convert the text to UTF-8, or use the "
        "byte tokenizer",
        what, static_cast<unsigned char>(text[*at]), *at);
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_number(char32_t c) {
  const int k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  const int k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_combining_mark(char32_t c) {
  const int k = category(c);
  return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

}  // namespace plait
