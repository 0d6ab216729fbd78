#include "plait/tokens/jinja/python.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "plait/tokens/jinja/unicode.h"

namespace plait::jinja {

namespace {

void append_quoted(std::string& out, std::string_view s) {
  const bool twice =
      s.find('\'') != std::string_view::npos && s.find('"') == std::string_view::npos;
  const char32_t quote = twice ? '"' : '\'';
  append_utf8(out, quote);
  for (size_t at = 0; at < s.size();) {
    const char32_t c = next_character(s, at);
    if (c == quote || c == '\\') {
      out += '\\';
      append_utf8(out, c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  append_utf8(out, quote);
}

class Repr {
 public:
  Repr(std::string& out, Budget& budget) : out_(out), budget_(budget) {}

  void write(const Value& v) {
    budget_.spend(1);
    switch (v.kind()) {
      case Value::Kind::undefined:
        out_ += "Undefined";
        break;
      case Value::Kind::none:
        out_ += "None";
        break;
      case Value::Kind::boolean:
        out_ += v.as_boolean() ? "True" : "False";
        break;
      case Value::Kind::integer:
        out_ += std::to_string(v.whole());
        break;
      case Value::Kind::real:
        out_ += float_text(v.number());
        break;
      case Value::Kind::text:
        if (v.text().markup) problem("the repr of a text marked safe is not supported");
        append_quoted(out_, v.bytes());
        break;
      case Value::Kind::sequence:
        sequence(v.sequence());
        break;
      case Value::Kind::dict:
        dict(v.dict());
        break;
      default:
        problem("a {} cannot be printed", v.type_name());
    }
    budget_.limit(out_.size());
  }

 private:
  void items(const List& all) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (i > 0) out_ += ", ";
      write(all[i]);
    }
  }
  void sequence(const Sequence& s) {
    switch (s.kind) {
      case Sequence::Kind::list:
        out_ += "[";
        items(s.items);
        out_ += "]";
        break;
      case Sequence::Kind::tuple:
        out_ += "(";
        items(s.items);
        out_ += s.items.size() == 1 ? ",)" : ")";
        break;
      case Sequence::Kind::range:
        out_ += fmt::format("range({}, {}", s.first, s.last);
        out_ += s.step == 1 ? ")" : fmt::format(", {})", s.step);
        break;
      case Sequence::Kind::view:
        out_ += s.name + "([";
        items(s.items);
        out_ += "])";
        break;
    }
  }
  void dict(const Dict& d) {
    out_ += "{";
    bool first = true;
    for (const auto& [key, value] : d.entries()) {
      if (!first) out_ += ", ";
      first = false;
      write(key);
      out_ += ": ";
      write(value);
    }
    out_ += "}";
  }

  std::string& out_;
  Budget& budget_;
};

class JsonWriter {
 public:
  JsonWriter(std::string& out, const JsonStyle& style, Budget& budget)
      : out_(out), style_(style), budget_(budget) {}

  void write(const Value& v, int level) {
    budget_.spend(1);
    if (v.is_text())
      quoted(v.bytes());
    else if (v.is_none())
      out_ += "null";
    else if (v.is(Value::Kind::boolean))
      out_ += v.as_boolean() ? "true" : "false";
    else if (v.is_number())
      out_ += number(v);
    else if (v.is_dict())
      object(v.dict(), level);
    else if (v.is_sequence(Sequence::Kind::list) || v.is_sequence(Sequence::Kind::tuple))
      array(v.sequence().items, level);
    else if (v.is_undefined())
      v.refuse_undefined();
    else
      problem("a {} cannot be written as JSON", v.type_name());
    budget_.limit(out_.size());
  }

 private:
  static std::string number(const Value& v) {
    if (v.is_whole()) return std::to_string(v.whole());
    const double d = v.number();
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return float_text(d);
  }
  void line(int level) {
    if (!style_.indent) return;
    const size_t wanted = style_.indent->size() * static_cast<size_t>(level);
    budget_.limit(out_.size() + wanted);
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }
  void array(const List& items, int level) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.between;
      line(level + 1);
      write(items[i], level + 1);
    }
    if (!items.empty()) line(level);
    out_ += ']';
  }
  std::string key(const Value& k) {
    if (k.is_text()) return k.bytes();
    if (k.is_none()) return "null";
    if (k.is(Value::Kind::boolean)) return k.as_boolean() ? "true" : "false";
    if (k.is_number()) return number(k);
    problem("a {} cannot be a name in JSON", k.type_name());
  }
  void object(const Dict& d, int level) {
    auto entries = d.entries();
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
        return compare(a.first, b.first, budget_) < 0;
      });
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.between;
      line(level + 1);
      quoted(key(entries[i].first));
      out_ += style_.colon;
      write(entries[i].second, level + 1);
    }
    if (!entries.empty()) line(level);
    out_ += '}';
  }
  void escaped(char32_t c) {
    if (c >= 0x10000) {
      const char32_t rest = c - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + static_cast<uint32_t>(rest >> 10),
                          0xdc00 + static_cast<uint32_t>(rest & 0x3ff));
    } else {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    }
  }
  void quoted(std::string_view s) {
    static constexpr std::string_view kShort = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    out_ += '"';
    for (size_t at = 0; at < s.size();) {
      const char32_t c = next_character(s, at);
      const size_t place = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
      if (place != std::string_view::npos) {
        out_ += '\\';
        out_ += kLetters[place];
      } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7e)) {
        escaped(c);
      } else {
        append_utf8(out_, c);
      }
    }
    out_ += '"';
  }

  std::string& out_;
  const JsonStyle& style_;
  Budget& budget_;
};

// Digits with single underscores between them lose these; otherwise nothing.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto digit = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    if (i == 0 || i + 1 == text.size() || !digit(text[i - 1]) || !digit(text[i + 1]))
      return std::nullopt;
  }
  return out;
}

}  // namespace

std::string float_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  std::string s(buffer, end.ptr);
  const size_t e = s.find('e');
  const int exponent = std::stoi(s.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return s;  // 1e+16: two digits at least, as Python's
  std::string digits = s.substr(0, e), sign;
  if (digits[0] == '-') {
    sign = "-";
    digits.erase(0, 1);
  }
  if (digits.size() > 1) digits.erase(1, 1);
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_str(std::string& out, const Value& v, Budget& budget) {
  if (v.is_text()) {
    out += v.bytes();
  } else if (v.is_undefined()) {
  } else if (v.is(Value::Kind::function) && v.function().macro != nullptr) {
    out += "<Macro '" + v.function().name + "'>";
  } else {
    Repr(out, budget).write(v);
  }
  budget.limit(out.size());
}

Value str(const Value& v, Budget& budget) {
  if (v.is_text() && !v.text().markup) return v;
  std::string out;
  append_str(out, v, budget);
  budget.text(out.size());
  return Value::text(std::move(out));
}

std::string repr(const Value& v, Budget& budget) {
  std::string out;
  Repr(out, budget).write(v);
  return out;
}

std::string json_text(const Value& v, const JsonStyle& style, Budget& budget) {
  std::string out;
  JsonWriter(out, style, budget).write(v, 0);
  budget.text(out.size());
  return out;
}

std::optional<int64_t> read_integer(std::string_view text, int base) {
  std::string_view t = strip_right(strip_left(text));
  bool negative = false;
  if (!t.empty() && (t[0] == '+' || t[0] == '-')) {
    negative = t[0] == '-';
    t.remove_prefix(1);
  }
  const auto prefixed = [&](char letter) {
    return t.size() > 2 && t[0] == '0' && (t[1] | 0x20) == letter;
  };
  if ((base == 16 && prefixed('x')) || (base == 8 && prefixed('o')) || (base == 2 && prefixed('b')))
    t.remove_prefix(2);
  const auto digits = without_underscores(t);
  if (!digits || digits->empty() || !std::isalnum(static_cast<unsigned char>((*digits)[0])))
    return std::nullopt;
  uint64_t magnitude = 0;
  const char* end = digits->data() + digits->size();
  const auto result = std::from_chars(digits->data(), end, magnitude, base);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec != std::errc() || magnitude > static_cast<uint64_t>(INT64_MAX))
    problem("the number {} needs more than 64 bits", t.substr(0, 40));
  return negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

std::optional<double> read_float(std::string_view text) {
  const auto t = without_underscores(strip_right(strip_left(text)));
  if (!t || t->empty()) return std::nullopt;
  std::string lower;
  for (const char c : *t) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  std::string_view rest = lower;
  double sign = 1;
  if (rest[0] == '+' || rest[0] == '-') {
    sign = rest[0] == '-' ? -1 : 1;
    rest.remove_prefix(1);
  }
  if (rest == "inf" || rest == "infinity") return sign * INFINITY;
  if (rest == "nan") return NAN;
  if (rest.empty() || (rest[0] != '.' && (rest[0] < '0' || rest[0] > '9'))) return std::nullopt;
  double d = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), d);
  if (result.ptr != rest.data() + rest.size() || result.ec == std::errc::invalid_argument)
    return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) d = std::strtod(lower.c_str(), nullptr) * sign;
  return sign * d;
}

int64_t truncated(double d) {
  if (!(std::abs(d) < 0x1p63)) problem("the number {} does not fit into 64 bits", float_text(d));
  return static_cast<int64_t>(d);
}

}  // namespace plait::jinja
