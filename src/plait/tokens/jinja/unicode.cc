#include "plait/tokens/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace plait::jinja {

namespace {

// Characters whose upper or title case is not one character (Unicode's SpecialCasing, the part
// that depends on neither language nor neighbours).
struct Special {
  char32_t from;
  std::u32string_view upper, title;
};

// clang-format off
constexpr Special kSpecial[] = {
    {0x00df, U"SS", U"Ss"}, {0x0149, U"\u02bcN", U"\u02bcN"}, {0x01f0, U"J\u030c", U"J\u030c"},
    {0x0390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x03b0, U"\u03a5\u0308\u0301", U"\u03a5\u0308\u0301"},
    {0x0587, U"\u0535\u0552", U"\u0535\u0582"}, {0x1e96, U"H\u0331", U"H\u0331"},
    {0x1e97, U"T\u0308", U"T\u0308"}, {0x1e98, U"W\u030a", U"W\u030a"},
    {0x1e99, U"Y\u030a", U"Y\u030a"}, {0x1e9a, U"A\u02be", U"A\u02be"},
    {0x1f50, U"\u03a5\u0313", U"\u03a5\u0313"},
    {0x1f52, U"\u03a5\u0313\u0300", U"\u03a5\u0313\u0300"},
    {0x1f54, U"\u03a5\u0313\u0301", U"\u03a5\u0313\u0301"},
    {0x1f56, U"\u03a5\u0313\u0342", U"\u03a5\u0313\u0342"}, {0x1f80, U"\u1f08\u0399", U"\u1f88"},
    {0x1f81, U"\u1f09\u0399", U"\u1f89"}, {0x1f82, U"\u1f0a\u0399", U"\u1f8a"},
    {0x1f83, U"\u1f0b\u0399", U"\u1f8b"}, {0x1f84, U"\u1f0c\u0399", U"\u1f8c"},
    {0x1f85, U"\u1f0d\u0399", U"\u1f8d"}, {0x1f86, U"\u1f0e\u0399", U"\u1f8e"},
    {0x1f87, U"\u1f0f\u0399", U"\u1f8f"}, {0x1f88, U"\u1f08\u0399", U"\u1f88"},
    {0x1f89, U"\u1f09\u0399", U"\u1f89"}, {0x1f8a, U"\u1f0a\u0399", U"\u1f8a"},
    {0x1f8b, U"\u1f0b\u0399", U"\u1f8b"}, {0x1f8c, U"\u1f0c\u0399", U"\u1f8c"},
    {0x1f8d, U"\u1f0d\u0399", U"\u1f8d"}, {0x1f8e, U"\u1f0e\u0399", U"\u1f8e"},
    {0x1f8f, U"\u1f0f\u0399", U"\u1f8f"}, {0x1f90, U"\u1f28\u0399", U"\u1f98"},
    {0x1f91, U"\u1f29\u0399", U"\u1f99"}, {0x1f92, U"\u1f2a\u0399", U"\u1f9a"},
    {0x1f93, U"\u1f2b\u0399", U"\u1f9b"}, {0x1f94, U"\u1f2c\u0399", U"\u1f9c"},
    {0x1f95, U"\u1f2d\u0399", U"\u1f9d"}, {0x1f96, U"\u1f2e\u0399", U"\u1f9e"},
    {0x1f97, U"\u1f2f\u0399", U"\u1f9f"}, {0x1f98, U"\u1f28\u0399", U"\u1f98"},
    {0x1f99, U"\u1f29\u0399", U"\u1f99"}, {0x1f9a, U"\u1f2a\u0399", U"\u1f9a"},
    {0x1f9b, U"\u1f2b\u0399", U"\u1f9b"}, {0x1f9c, U"\u1f2c\u0399", U"\u1f9c"},
    {0x1f9d, U"\u1f2d\u0399", U"\u1f9d"}, {0x1f9e, U"\u1f2e\u0399", U"\u1f9e"},
    {0x1f9f, U"\u1f2f\u0399", U"\u1f9f"}, {0x1fa0, U"\u1f68\u0399", U"\u1fa8"},
    {0x1fa1, U"\u1f69\u0399", U"\u1fa9"}, {0x1fa2, U"\u1f6a\u0399", U"\u1faa"},
    {0x1fa3, U"\u1f6b\u0399", U"\u1fab"}, {0x1fa4, U"\u1f6c\u0399", U"\u1fac"},
    {0x1fa5, U"\u1f6d\u0399", U"\u1fad"}, {0x1fa6, U"\u1f6e\u0399", U"\u1fae"},
    {0x1fa7, U"\u1f6f\u0399", U"\u1faf"}, {0x1fa8, U"\u1f68\u0399", U"\u1fa8"},
    {0x1fa9, U"\u1f69\u0399", U"\u1fa9"}, {0x1faa, U"\u1f6a\u0399", U"\u1faa"},
    {0x1fab, U"\u1f6b\u0399", U"\u1fab"}, {0x1fac, U"\u1f6c\u0399", U"\u1fac"},
    {0x1fad, U"\u1f6d\u0399", U"\u1fad"}, {0x1fae, U"\u1f6e\u0399", U"\u1fae"},
    {0x1faf, U"\u1f6f\u0399", U"\u1faf"}, {0x1fb2, U"\u1fba\u0399", U"\u1fba\u0345"},
    {0x1fb3, U"\u0391\u0399", U"\u1fbc"}, {0x1fb4, U"\u0386\u0399", U"\u0386\u0345"},
    {0x1fb6, U"\u0391\u0342", U"\u0391\u0342"},
    {0x1fb7, U"\u0391\u0342\u0399", U"\u0391\u0342\u0345"}, {0x1fbc, U"\u0391\u0399", U"\u1fbc"},
    {0x1fc2, U"\u1fca\u0399", U"\u1fca\u0345"}, {0x1fc3, U"\u0397\u0399", U"\u1fcc"},
    {0x1fc4, U"\u0389\u0399", U"\u0389\u0345"}, {0x1fc6, U"\u0397\u0342", U"\u0397\u0342"},
    {0x1fc7, U"\u0397\u0342\u0399", U"\u0397\u0342\u0345"}, {0x1fcc, U"\u0397\u0399", U"\u1fcc"},
    {0x1fd2, U"\u0399\u0308\u0300", U"\u0399\u0308\u0300"},
    {0x1fd3, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x1fd6, U"\u0399\u0342", U"\u0399\u0342"},
    {0x1fd7, U"\u0399\u0308\u0342", U"\u0399\u0308\u0342"},
    {0x1fe2, U"\u03a5\u0308\u0300", U"\u03a5\u0308\u0300"},
    {0x1fe3, U"\u03a5\u0308\u0301", U"\u03a5\u0308\u0301"},
    {0x1fe4, U"\u03a1\u0313", U"\u03a1\u0313"}, {0x1fe6, U"\u03a5\u0342", U"\u03a5\u0342"},
    {0x1fe7, U"\u03a5\u0308\u0342", U"\u03a5\u0308\u0342"},
    {0x1ff2, U"\u1ffa\u0399", U"\u1ffa\u0345"}, {0x1ff3, U"\u03a9\u0399", U"\u1ffc"},
    {0x1ff4, U"\u038f\u0399", U"\u038f\u0345"}, {0x1ff6, U"\u03a9\u0342", U"\u03a9\u0342"},
    {0x1ff7, U"\u03a9\u0342\u0399", U"\u03a9\u0342\u0345"}, {0x1ffc, U"\u03a9\u0399", U"\u1ffc"},
    {0xfb00, U"FF", U"Ff"}, {0xfb01, U"FI", U"Fi"}, {0xfb02, U"FL", U"Fl"},
    {0xfb03, U"FFI", U"Ffi"}, {0xfb04, U"FFL", U"Ffl"}, {0xfb05, U"ST", U"St"},
    {0xfb06, U"ST", U"St"}, {0xfb13, U"\u0544\u0546", U"\u0544\u0576"},
    {0xfb14, U"\u0544\u0535", U"\u0544\u0565"}, {0xfb15, U"\u0544\u053b", U"\u0544\u056b"},
    {0xfb16, U"\u054e\u0546", U"\u054e\u0576"}, {0xfb17, U"\u0544\u053d", U"\u0544\u056d"},
};
// clang-format on

const Special* special(char32_t c) {
  if (c < 0xdf) return nullptr;
  const auto* at = std::lower_bound(std::begin(kSpecial), std::end(kSpecial), c,
                                    [](const Special& s, char32_t x) { return s.from < x; });
  return at != std::end(kSpecial) && at->from == c ? at : nullptr;
}

int category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

void append_all(std::string& out, std::u32string_view characters) {
  for (const char32_t c : characters) append_utf8(out, c);
}

void append_upper(std::string& out, char32_t c) {
  if (const Special* s = special(c)) return append_all(out, s->upper);
  append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (const Special* s = special(c)) return append_all(out, s->title);
  append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

// Derived core properties, near enough: what a letter's case does to the letters around it.
bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

bool is_case_ignorable(char32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xa8 || c == 0xad ||
      c == 0xaf || c == 0xb4 || c == 0xb7 || c == 0xb8 || c == 0x2019 || c == 0x2018)
    return true;
  const int k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK;
}

// A capital sigma that ends a word becomes another small letter than one within it.
bool ends_word(std::string_view text, size_t before, size_t behind) {
  const auto cased = [](char32_t c) { return is_cased(c) && !is_case_ignorable(c); };
  bool letter_before = false;
  while (before > 0) {
    do --before;
    while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xc0) == 0x80);
    size_t at = before;
    const char32_t c = next_character(text, at);
    if (is_case_ignorable(c)) continue;
    letter_before = cased(c);
    break;
  }
  if (!letter_before) return false;
  while (behind < text.size()) {
    const char32_t c = next_character(text, behind);
    if (!is_case_ignorable(c)) return !cased(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t begin, size_t end, char32_t c) {
  if (c == 0x130) return append_all(out, U"i\u0307");
  if (c == 0x3a3) return append_utf8(out, ends_word(text, begin, end) ? 0x3c2 : 0x3c3);
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

char32_t next_character(std::string_view text, size_t& position) {
  const char32_t c = utf8_at(text, position);
  position += utf8_length(text[position]);
  return c;
}

size_t offset_of(std::string_view text, int64_t index) {
  size_t at = 0;
  while (index-- > 0 && at < text.size()) next_character(text, at);
  return at;
}

std::vector<std::string> split_characters(std::string_view text) {
  std::vector<std::string> all;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_character(text, at);
    all.emplace_back(text.substr(begin, at - begin));
  }
  return all;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  const int k = category(c);
  return k != UTF8PROC_CATEGORY_CN && (k < UTF8PROC_CATEGORY_ZS || k > UTF8PROC_CATEGORY_CO);
}

bool is_letter(char32_t c) {
  const int k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return category(c) == UTF8PROC_CATEGORY_ND || c == 0xb2 || c == 0xb3 || c == 0xb9 ||
         c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) append_upper(out, next_character(text, at));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_character(text, at);
    append_lower(out, text, begin, at, c);
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool within = false;  // the character before has a case
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_character(text, at);
    if (within)
      append_lower(out, text, begin, at, c);
    else
      append_title(out, c);
    within = is_cased(c);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  size_t at = 0;
  if (!text.empty()) append_title(out, next_character(text, at));
  while (at < text.size()) {
    const size_t begin = at;
    const char32_t c = next_character(text, at);
    append_lower(out, text, begin, at, c);
  }
  return out;
}

std::string_view strip_left(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t begin = at;
    if (!is_space(next_character(text, at))) return text.substr(begin);
  }
  return {};
}

std::string_view strip_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    size_t at = begin;
    if (!is_space(next_character(text, at))) break;
    end = begin;
  }
  return text.substr(0, end);
}

}  // namespace plait::jinja
