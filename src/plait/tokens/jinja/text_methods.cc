#include <algorithm>

#include "plait/tokens/jinja/library.h"
#include "plait/tokens/jinja/text.h"
#include "plait/tokens/jinja/unicode.h"

namespace plait::jinja {

namespace {

const std::string& text_argument(const Value& v) {
  if (v.is_undefined()) v.refuse_undefined();
  if (!v.is_text()) problem("expected a text as argument, found {}", v.type_name());
  return v.bytes();
}

int64_t whole_argument(const Value& v, int64_t absent) {
  if (v.is_undefined() || v.is_none()) return absent;
  if (!v.is_whole()) problem("expected an integer as argument, found {}", v.type_name());
  return v.whole();
}

Value strip(Machine& m, const Value& self, const List& a, bool left, bool right) {
  const bool plain = a[0].is_undefined() || a[0].is_none();
  m.budget.search(self.bytes().size(), plain ? 0 : text_argument(a[0]).size());
  return Value::text(stripped(self.bytes(), plain ? nullptr : &text_argument(a[0]), left, right),
                     self.text().markup);
}
Value strip_both(Machine& m, const Value& s, const List& a) { return strip(m, s, a, true, true); }
Value lstrip(Machine& m, const Value& s, const List& a) { return strip(m, s, a, true, false); }
Value rstrip(Machine& m, const Value& s, const List& a) { return strip(m, s, a, false, true); }

Value texts(Machine& m, std::vector<std::string> parts) {
  m.budget.spend(static_cast<int64_t>(parts.size()));
  List all;
  for (std::string& part : parts) all.push_back(Value::text(std::move(part)));
  return Value::list(std::move(all));
}

// By runs of white space.
std::vector<std::string> split_words(std::string_view s, int64_t limit, bool from_right) {
  std::vector<std::string> parts;
  std::string_view rest = from_right ? strip_right(s) : strip_left(s);
  while (!rest.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.emplace_back(rest);
      break;
    }
    if (from_right) {
      size_t begin = rest.size();
      while (begin > 0) {
        size_t one = begin - 1;
        while (one > 0 && (static_cast<unsigned char>(rest[one]) & 0xc0) == 0x80) --one;
        size_t at = one;
        if (is_space(next_character(rest, at))) break;
        begin = one;
      }
      parts.emplace_back(rest.substr(begin));
      rest = strip_right(rest.substr(0, begin));
    } else {
      size_t end = 0;
      while (end < rest.size()) {
        size_t at = end;
        if (is_space(next_character(rest, at))) break;
        end = at;
      }
      parts.emplace_back(rest.substr(0, end));
      rest = strip_left(rest.substr(end));
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_at(std::string_view s, std::string_view separator, int64_t limit,
                                  bool from_right) {
  std::vector<std::string> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = from_right ? s.rfind(separator) : s.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      parts.emplace_back(s.substr(at + separator.size()));
      s = s.substr(0, at);
    } else {
      parts.emplace_back(s.substr(0, at));
      s = s.substr(at + separator.size());
    }
  }
  parts.emplace_back(s);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value split(Machine& m, const Value& self, const List& a, bool from_right) {
  const int64_t limit = whole_argument(a[1], -1);
  const std::string& s = self.bytes();
  if (a[0].is_undefined() || a[0].is_none()) {
    m.budget.text(s.size());
    return texts(m, split_words(s, limit, from_right));
  }
  const std::string& separator = text_argument(a[0]);
  if (separator.empty()) problem("split() by an empty text");
  m.budget.search(s.size(), separator.size());
  return texts(m, split_at(s, separator, limit, from_right));
}
Value split_left(Machine& m, const Value& s, const List& a) { return split(m, s, a, false); }
Value split_right(Machine& m, const Value& s, const List& a) { return split(m, s, a, true); }

Value splitlines(Machine& m, const Value& self, const List& a) {
  m.budget.text(self.bytes().size());
  return texts(m, split_lines(self.bytes(), a[0].truthy()));
}

Value partition(Machine& m, const Value& self, const List& a, bool from_right) {
  const std::string &s = self.bytes(), &separator = text_argument(a[0]);
  if (separator.empty()) problem("partition() by an empty text");
  m.budget.search(s.size(), separator.size());
  const size_t at = from_right ? s.rfind(separator) : s.find(separator);
  if (at == std::string::npos) {
    const Value none = Value::text("");
    return from_right ? Value::tuple({none, none, self}) : Value::tuple({self, none, none});
  }
  return Value::tuple(
      {Value::text(s.substr(0, at)), a[0], Value::text(s.substr(at + separator.size()))});
}
Value partition_left(Machine& m, const Value& s, const List& a) {
  return partition(m, s, a, false);
}
Value partition_right(Machine& m, const Value& s, const List& a) {
  return partition(m, s, a, true);
}

// The part that optional arguments `start` and `end` choose. `first`: its offset in characters.
struct Window {
  std::string_view text;
  int64_t first = 0;
  bool valid = true;
};
Window window(const Value& self, const Value& start, const Value& end) {
  Window w;
  w.text = self.bytes();
  const bool has_start = !start.is_undefined() && !start.is_none();
  const bool has_end = !end.is_undefined() && !end.is_none();
  if (!has_start && !has_end) return w;
  const int64_t size = length_of(self);
  const auto place = [&](int64_t i) { return i < 0 ? std::max<int64_t>(i + size, 0) : i; };
  w.first = place(whole_argument(start, 0));
  const int64_t last = std::min(place(whole_argument(end, size)), size);
  w.valid = w.first <= last;
  if (!w.valid) return w;
  const size_t begin = offset_of(w.text, w.first);
  w.text = w.text.substr(begin, offset_of(w.text.substr(begin), last - w.first));
  return w;
}

Value has_end(Machine& m, const Value& self, const List& a, bool front) {
  const Window w = window(self, a[1], a[2]);
  List all = {a[0]};
  if (a[0].is_sequence(Sequence::Kind::tuple)) all = a[0].sequence().items;
  for (const Value& v : all) {
    const std::string& part = text_argument(v);
    m.budget.text(part.size());
    if (w.valid && (front ? w.text.starts_with(part) : w.text.ends_with(part)))
      return Value::boolean(true);
  }
  return Value::boolean(false);
}
Value startswith(Machine& m, const Value& s, const List& a) { return has_end(m, s, a, true); }
Value endswith(Machine& m, const Value& s, const List& a) { return has_end(m, s, a, false); }

Value find_in(Machine& m, const Value& self, const List& a, bool from_right, bool must) {
  const Window w = window(self, a[1], a[2]);
  const std::string& part = text_argument(a[0]);
  m.budget.search(w.text.size(), part.size());
  const size_t at = !w.valid     ? std::string_view::npos
                    : from_right ? w.text.rfind(part)
                                 : w.text.find(part);
  if (at != std::string_view::npos)
    return Value::integer(w.first + count_characters(w.text.substr(0, at)));
  if (must) problem("index(): the text does not occur");
  return Value::integer(-1);
}
Value find(Machine& m, const Value& s, const List& a) { return find_in(m, s, a, false, false); }
Value rfind(Machine& m, const Value& s, const List& a) { return find_in(m, s, a, true, false); }
Value index(Machine& m, const Value& s, const List& a) { return find_in(m, s, a, false, true); }
Value rindex(Machine& m, const Value& s, const List& a) { return find_in(m, s, a, true, true); }

Value count(Machine& m, const Value& self, const List& a) {
  const Window w = window(self, a[1], a[2]);
  const std::string& part = text_argument(a[0]);
  m.budget.search(w.text.size(), part.size());
  if (!w.valid) return Value::integer(0);
  if (part.empty()) return Value::integer(count_characters(w.text) + 1);
  int64_t n = 0;
  for (size_t at = w.text.find(part); at != std::string_view::npos;
       at = w.text.find(part, at + part.size()))
    ++n;
  return Value::integer(n);
}

Value replace(Machine& m, const Value& self, const List& a) {
  const int64_t limit = whole_argument(a[2], -1);
  return Value::text(
      replaced(self.bytes(), text_argument(a[0]), text_argument(a[1]), limit, m.budget));
}

Value join(Machine& m, const Value& self, const List& a) {
  std::string all;
  bool first = true;
  for (const Value& v : items_of(a[0], m.budget)) {
    if (!first) all += self.bytes();
    first = false;
    all += text_argument(v);
    m.budget.limit(all.size());
  }
  m.budget.text(all.size());
  return Value::text(std::move(all));
}

template <std::string (*F)(std::string_view)>
Value cased(Machine& m, const Value& self, const List&) {
  m.budget.text(self.bytes().size());
  std::string s = F(self.bytes());
  m.budget.text(s.size());
  return Value::text(std::move(s), self.text().markup);
}

template <bool (*F)(char32_t)>
Value all_are(Machine& m, const Value& self, const List&) {
  const std::string& s = self.bytes();
  m.budget.text(s.size());
  bool all = !s.empty();
  for (size_t at = 0; at < s.size() && all;) all = F(next_character(s, at));
  return Value::boolean(all);
}
bool is_letter_or_digit(char32_t c) { return is_letter(c) || is_digit(c); }

template <bool (*Wanted)(char32_t), bool (*Other)(char32_t)>
Value has_case(Machine& m, const Value& self, const List&) {
  const std::string& s = self.bytes();
  m.budget.text(s.size());
  bool any = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = next_character(s, at);
    if (Other(c) || is_title(c)) return Value::boolean(false);
    any = any || Wanted(c);
  }
  return Value::boolean(any);
}

Value remove_prefix(Machine&, const Value& self, const List& a) {
  const std::string &s = self.bytes(), &part = text_argument(a[0]);
  return s.starts_with(part) ? Value::text(s.substr(part.size())) : self;
}
Value remove_suffix(Machine&, const Value& self, const List& a) {
  const std::string &s = self.bytes(), &part = text_argument(a[0]);
  return s.ends_with(part) ? Value::text(s.substr(0, s.size() - part.size())) : self;
}

Value justified(Machine& m, const Value& self, const List& a, bool left, bool right) {
  const std::string fill = a[1].is_undefined() ? " " : text_argument(a[1]);
  if (count_characters(fill) != 1) problem("the filling must be one character");
  const int64_t more = whole_argument(a[0], 0) - length_of(self);
  if (more <= 0) return self;
  if (more > INT32_MAX) problem("a text that wide");
  m.budget.text(self.bytes().size() + static_cast<size_t>(more) * fill.size());
  // Python puts the odd one out on the left where the width is odd.
  const int64_t width = more + length_of(self);
  const int64_t before = !left ? 0 : !right ? more : more / 2 + (more & width & 1);
  std::string out;
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += self.bytes();
  for (int64_t i = before; i < more; ++i) out += fill;
  return Value::text(std::move(out));
}
Value ljust(Machine& m, const Value& s, const List& a) { return justified(m, s, a, false, true); }
Value rjust(Machine& m, const Value& s, const List& a) { return justified(m, s, a, true, false); }
Value center(Machine& m, const Value& s, const List& a) { return justified(m, s, a, true, true); }

Value zfill(Machine& m, const Value& self, const List& a) {
  const std::string& s = self.bytes();
  const size_t sign = !s.empty() && (s[0] == '+' || s[0] == '-') ? 1 : 0;
  const int64_t more = whole_argument(a[0], 0) - length_of(self);
  if (more <= 0) return self;
  if (more > INT32_MAX) problem("a text that wide");
  m.budget.text(s.size() + static_cast<size_t>(more));
  return Value::text(s.substr(0, sign) + std::string(static_cast<size_t>(more), '0') +
                     s.substr(sign));
}

Value format(Machine& m, const Value& self, const Arguments& a) {
  return Value::text(format_text(self.bytes(), a, m.budget));
}

const std::vector<Method>& methods() {
  static const std::vector<Method> all = {{"strip", {"chars"}, 0, strip_both},
                                          {"lstrip", {"chars"}, 0, lstrip},
                                          {"rstrip", {"chars"}, 0, rstrip},
                                          {"split", {"sep", "maxsplit"}, 0, split_left},
                                          {"rsplit", {"sep", "maxsplit"}, 0, split_right},
                                          {"splitlines", {"keepends"}, 0, splitlines},
                                          {"partition", {"sep"}, 1, partition_left},
                                          {"rpartition", {"sep"}, 1, partition_right},
                                          {"startswith", {"prefix", "start", "end"}, 1, startswith},
                                          {"endswith", {"suffix", "start", "end"}, 1, endswith},
                                          {"find", {"sub", "start", "end"}, 1, find},
                                          {"rfind", {"sub", "start", "end"}, 1, rfind},
                                          {"index", {"sub", "start", "end"}, 1, index},
                                          {"rindex", {"sub", "start", "end"}, 1, rindex},
                                          {"count", {"sub", "start", "end"}, 1, count},
                                          {"replace", {"old", "new", "count"}, 2, replace},
                                          {"join", {"iterable"}, 1, join},
                                          {"upper", {}, 0, cased<to_upper>},
                                          {"lower", {}, 0, cased<to_lower>},
                                          {"title", {}, 0, cased<to_title>},
                                          {"capitalize", {}, 0, cased<to_capitalized>},
                                          {"isspace", {}, 0, all_are<is_space>},
                                          {"isalpha", {}, 0, all_are<is_letter>},
                                          {"isdigit", {}, 0, all_are<is_digit>},
                                          {"isalnum", {}, 0, all_are<is_letter_or_digit>},
                                          {"islower", {}, 0, has_case<is_lower, is_upper>},
                                          {"isupper", {}, 0, has_case<is_upper, is_lower>},
                                          {"removeprefix", {"prefix"}, 1, remove_prefix},
                                          {"removesuffix", {"suffix"}, 1, remove_suffix},
                                          {"ljust", {"width", "fillchar"}, 1, ljust},
                                          {"rjust", {"width", "fillchar"}, 1, rjust},
                                          {"center", {"width", "fillchar"}, 1, center},
                                          {"zfill", {"width"}, 1, zfill},
                                          {"format", {}, 0, nullptr, format}};
  return all;
}

}  // namespace

const Method* find_text_method(std::string_view name) {
  for (const Method& m : methods())
    if (m.name == name) return &m;
  return nullptr;
}

}  // namespace plait::jinja
