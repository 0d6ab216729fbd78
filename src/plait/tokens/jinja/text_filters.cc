#include <cmath>

#include "plait/tokens/jinja/library.h"
#include "plait/tokens/jinja/python.h"
#include "plait/tokens/jinja/text.h"
#include "plait/tokens/jinja/unicode.h"

namespace plait::jinja {

namespace {

bool given(const Value& v) { return !v.is_undefined() && !v.is_none(); }

int64_t whole_or(const Value& v, int64_t absent, std::string_view what) {
  if (v.is_undefined()) return absent;
  if (!v.is_whole()) problem("{} must be an integer, found {}", what, v.type_name());
  return v.whole();
}

template <std::string (*F)(std::string_view)>
Value cased(Machine& m, const Value& v, const List&) {
  const Value s = str(v, m.budget);
  std::string out = F(s.bytes());
  m.budget.text(s.bytes().size() + out.size());
  return Value::text(std::move(out), v.is_text() && v.text().markup);
}

// Jinja's own idea of a word, other than str.title's.
std::string titled(std::string_view s) {
  std::string out;
  bool within = false;
  std::string word;
  const auto flush = [&] {
    size_t at = 0;
    if (word.empty()) return;
    next_character(word, at);
    out += to_upper(word.substr(0, at)) + to_lower(word.substr(at));
    word.clear();
  };
  for (size_t at = 0; at < s.size();) {
    const size_t begin = at;
    const char32_t c = next_character(s, at);
    within = !(c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c));
    if (!within) flush();
    (within ? word : out).append(s.substr(begin, at - begin));
  }
  flush();
  return out;
}

Value trim(Machine& m, const Value& v, const List& a) {
  const Value s = str(v, m.budget);
  if (given(a[0]) && !a[0].is_text()) problem("trim() takes a text");
  m.budget.search(s.bytes().size(), given(a[0]) ? a[0].bytes().size() : 0);
  return Value::text(stripped(s.bytes(), given(a[0]) ? &a[0].bytes() : nullptr, true, true),
                     v.is_text() && v.text().markup);
}

Value replace(Machine& m, const Value& v, const List& a) {
  const int64_t count = a[2].is_none() ? -1 : whole_or(a[2], -1, "the count of replace()");
  return Value::text(replaced(str(v, m.budget).bytes(), str(a[0], m.budget).bytes(),
                              str(a[1], m.budget).bytes(), count, m.budget));
}

Value indent(Machine& m, const Value& v, const List& a) {
  if (v.is_undefined()) v.refuse_undefined();
  if (!v.is_text()) problem("indent is of a text, not of {}", v.type_name());
  std::string step = "    ";
  if (a[0].is_text()) {
    step = a[0].bytes();
  } else if (!a[0].is_undefined()) {
    const int64_t width = std::max<int64_t>(whole_or(a[0], 4, "the width of indent()"), 0);
    m.budget.text(static_cast<size_t>(width));
    step = std::string(static_cast<size_t>(width), ' ');
  }
  const bool first = a[1].truthy(), blank = a[2].truthy();
  m.budget.text(v.bytes().size());
  const std::vector<std::string> lines = split_lines(v.bytes() + "\n", false);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    if (i == 0 ? first : blank || !lines[i].empty()) out += step;
    out += lines[i];
    m.budget.limit(out.size());
  }
  m.budget.text(out.size());
  return Value::text(std::move(out), v.text().markup);
}

Value to_text(Machine& m, const Value& v, const List&) {
  return v.is_text() ? v : str(v, m.budget);
}

Value safe(Machine& m, const Value& v, const List&) {
  return Value::text(str(v, m.budget).bytes(), true);
}

Value escape(Machine& m, const Value& v, const List&) {
  if (v.is_text() && v.text().markup) return v;
  std::string out = html_escaped(str(v, m.budget).bytes());
  m.budget.text(out.size());
  return Value::text(std::move(out), true);
}

Value integer(Machine&, const Value& v, const List& a) {
  const Value absent = a[0].is_undefined() ? Value::integer(0) : a[0];
  const int64_t base = whole_or(a[1], 10, "the base of int()");
  if (base != 2 && base != 8 && base != 10 && base != 16)
    problem("int() in base {} is not supported", base);
  if (v.is_undefined()) v.refuse_undefined();
  if (v.is_whole()) return Value::integer(v.whole());
  std::optional<double> d;
  if (v.is_text()) {
    const auto read = read_integer(v.bytes(), static_cast<int>(base));
    if (read) return Value::integer(*read);
    d = read_float(v.bytes());
  } else if (v.is_number()) {
    d = v.number();
  }
  if (!d || !std::isfinite(*d)) return absent;
  return Value::integer(truncated(*d));
}

Value real(Machine&, const Value& v, const List& a) {
  const Value absent = a[0].is_undefined() ? Value::real(0) : a[0];
  if (v.is_undefined()) v.refuse_undefined();
  if (v.is_number()) return Value::real(v.number());
  const auto d = v.is_text() ? read_float(v.bytes()) : std::nullopt;
  return d ? Value::real(*d) : absent;
}

Value absolute(Machine&, const Value& v, const List&) {
  if (v.is_undefined()) v.refuse_undefined();
  if (!v.is_number()) problem("abs is of a number, not of {}", v.type_name());
  if (!v.is_whole()) return Value::real(std::abs(v.number()));
  if (v.whole() == INT64_MIN) problem("the result needs more than 64 bits");
  return Value::integer(std::abs(v.whole()));
}

// To the nearest, halves to even; `digits` behind the point.
double rounded(double d, int64_t digits) {
  if (!std::isfinite(d) || digits > 300) return d;
  if (digits >= 0)
    return std::strtod(fmt::format("{:.{}f}", d, static_cast<int>(digits)).c_str(), nullptr);
  if (digits < -308) return std::copysign(0.0, d);
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(d / unit) * unit;
}

Value round(Machine&, const Value& v, const List& a) {
  if (v.is_undefined()) v.refuse_undefined();
  if (!v.is_number()) problem("round is of a number, not of {}", v.type_name());
  const int64_t digits = whole_or(a[0], 0, "the precision of round()");
  const std::string method = a[1].is_undefined() ? "common" : a[1].is_text() ? a[1].bytes() : "?";
  if (method == "common") {
    if (!v.is_whole()) return Value::real(rounded(v.number(), digits));
    if (digits < 0) problem("round() of an integer with a negative precision is not supported");
    return Value::integer(v.whole());
  }
  if (method != "ceil" && method != "floor") problem("round() knows common, ceil and floor");
  if (digits < -300 || digits > 300) problem("round() with a precision of {}", digits);
  const double unit = std::pow(10.0, static_cast<double>(std::abs(digits)));
  const double scaled = digits < 0 ? v.number() / unit : v.number() * unit;
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return Value::real(digits < 0 ? whole * unit : whole / unit);
}

Value to_json(Machine& m, const Value& v, const List& a) {
  JsonStyle style;
  style.ensure_ascii = a[0].truthy();
  if (a[1].is_text()) {
    style.indent = a[1].bytes();
  } else if (given(a[1])) {
    const int64_t width = std::max<int64_t>(whole_or(a[1], 0, "the indent of tojson()"), 0);
    m.budget.text(static_cast<size_t>(width));
    style.indent = std::string(static_cast<size_t>(width), ' ');
  }
  if (style.indent) style.between = ",";
  if (given(a[2])) {
    const List both = items_of(a[2], m.budget);
    if (both.size() != 2 || !both[0].is_text() || !both[1].is_text())
      problem("the separators of tojson() must be two texts");
    style.between = both[0].bytes();
    style.colon = both[1].bytes();
  }
  style.sort_keys = a[3].truthy();
  return Value::text(json_text(v, style, m.budget));
}

Value format(Machine& m, const Value& v, const Arguments& a) {
  const Value s = str(v, m.budget);
  if (!a.named.empty()) problem("format() with names is not supported");
  return Value::text(percent_text(s.bytes(), Value::tuple(a.plain), m.budget));
}

Value count_words(Machine& m, const Value& v, const List&) {
  const Value s = str(v, m.budget);
  int64_t words = 0;
  bool within = false;
  for (size_t at = 0; at < s.bytes().size();) {
    const char32_t c = next_character(s.bytes(), at);
    const bool word = c == '_' || is_letter(c) || is_digit(c);
    words += word && !within ? 1 : 0;
    within = word;
  }
  return Value::integer(words);
}

}  // namespace

std::span<const Filter> text_filters() {
  static const std::vector<Filter> all = {
      {"trim", {"chars"}, 0, trim},
      {"upper", {}, 0, cased<to_upper>},
      {"lower", {}, 0, cased<to_lower>},
      {"capitalize", {}, 0, cased<to_capitalized>},
      {"title", {}, 0, cased<titled>},
      {"replace", {"old", "new", "count"}, 2, replace},
      {"indent", {"width", "first", "blank"}, 0, indent},
      {"string", {}, 0, to_text},
      {"safe", {}, 0, safe},
      {"escape", {}, 0, escape},
      {"e", {}, 0, escape},
      {"int", {"default", "base"}, 0, integer},
      {"float", {"default"}, 0, real},
      {"abs", {}, 0, absolute},
      {"round", {"precision", "method"}, 0, round},
      {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, to_json},
      {"format", {}, 0, nullptr, format},
      {"wordcount", {}, 0, count_words}};
  return all;
}

}  // namespace plait::jinja
