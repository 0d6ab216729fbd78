#include <array>
#include <cmath>

#include "plait/tokens/jinja/library.h"
#include "plait/tokens/jinja/python.h"
#include "plait/tokens/jinja/unicode.h"

namespace plait::jinja {

namespace {

struct Moment {
  int64_t year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
  int64_t weekday = 4, day_of_year = 1;  // Sunday is 0
};

// The proleptic Gregorian calendar, from days since 1970; eras of 400 years begin on 1 March.
Moment moment_of(int64_t seconds) {
  Moment m;
  int64_t days = seconds / 86400, rest = seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  m.hour = rest / 3600;
  m.minute = rest / 60 % 60;
  m.second = rest % 60;
  m.weekday = ((days + 4) % 7 + 7) % 7;
  const int64_t shifted = days + 719468;
  const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const int64_t of_era = shifted - era * 146097;
  const int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  const int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t from_march = (5 * of_year + 2) / 153;
  m.day = of_year - (153 * from_march + 2) / 5 + 1;
  m.month = from_march < 10 ? from_march + 3 : from_march - 9;
  m.year = year_of_era + era * 400 + (m.month <= 2 ? 1 : 0);
  const bool leap = (m.year % 4 == 0 && m.year % 100 != 0) || m.year % 400 == 0;
  m.day_of_year = m.month <= 2 ? of_year - 305 : of_year + 60 + (leap ? 1 : 0);
  return m;
}

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

// A number with `width` places, filled with zeros, with spaces (%e), or not at all (%-d).
std::string padded(int64_t value, int width, char fill) {
  std::string s = std::to_string(value);
  while (fill != 0 && static_cast<int>(s.size()) < width) s.insert(0, 1, fill);
  return s;
}

std::string directive(const Moment& m, char letter, bool bare) {
  const auto number = [&](int64_t value, int width, char fill = '0') {
    return padded(value, width, bare ? '\0' : fill);
  };
  const auto day = kDays[static_cast<size_t>(m.weekday)];
  const auto month = kMonths[static_cast<size_t>(m.month - 1)];
  const int64_t twelve = m.hour % 12 == 0 ? 12 : m.hour % 12;
  const auto all = [&](std::string_view letters, std::string_view between) {
    std::string out;
    for (const char c : letters) {
      if (!out.empty()) out += between;
      out += directive(m, c, false);
    }
    return out;
  };
  switch (letter) {
    case 'Y':
      return std::to_string(m.year);
    case 'y':
      return number((m.year % 100 + 100) % 100, 2);
    case 'm':
      return number(m.month, 2);
    case 'd':
      return number(m.day, 2);
    case 'e':
      return number(m.day, 2, ' ');
    case 'H':
      return number(m.hour, 2);
    case 'I':
      return number(twelve, 2);
    case 'M':
      return number(m.minute, 2);
    case 'S':
      return number(m.second, 2);
    case 'j':
      return number(m.day_of_year, 3);
    case 'p':
      return m.hour < 12 ? "AM" : "PM";
    case 'A':
      return std::string(day);
    case 'a':
      return std::string(day.substr(0, 3));
    case 'B':
      return std::string(month);
    case 'b':
    case 'h':
      return std::string(month.substr(0, 3));
    case 'u':
      return std::to_string(m.weekday == 0 ? 7 : m.weekday);
    case 'w':
      return std::to_string(m.weekday);
    case 'F':
      return all("Ymd", "-");
    case 'T':
      return all("HMS", ":");
    case 'R':
      return all("HM", ":");
    case 'D':
      return all("mdy", "/");
    case '%':
      return "%";
    default:
      problem("strftime_now: the directive '%{}' is not supported",
              letter >= ' ' && letter < 0x7f ? letter : '?');
  }
}

// One conversion of a %-format.
struct Conversion {
  bool left = false, zero = false;
  int width = 0, precision = -1;
};

int small_number(const std::string& s, size_t& at) {
  int n = 0;
  while (at < s.size() && s[at] >= '0' && s[at] <= '9') {
    n = n * 10 + (s[at++] - '0');
    if (n > 1000) problem("a format with a width above 1000");
  }
  return n;
}

std::string converted(char letter, const Conversion& c, const Value& v, Budget& budget) {
  switch (letter) {
    case 's':
    case 'r': {
      std::string s = letter == 's' ? str(v, budget).bytes() : repr(v, budget);
      if (c.precision >= 0) s = s.substr(0, offset_of(s, c.precision));
      return s;
    }
    case 'd':
    case 'i':
      if (!v.is_number()) problem("%{} needs a number, found {}", letter, v.type_name());
      return std::to_string(v.is_whole() ? v.whole() : truncated(v.number()));
    case 'x':
    case 'X':
    case 'o':
      if (!v.is_whole() || v.whole() < 0) problem("%{} needs a natural number", letter);
      return letter == 'x'   ? fmt::format("{:x}", v.whole())
             : letter == 'X' ? fmt::format("{:X}", v.whole())
                             : fmt::format("{:o}", v.whole());
    case 'f':
    case 'e':
    case 'g': {
      if (!v.is_number()) problem("%{} needs a number, found {}", letter, v.type_name());
      const int precision = c.precision < 0 ? 6 : c.precision;
      return letter == 'f'   ? fmt::format("{:.{}f}", v.number(), precision)
             : letter == 'e' ? fmt::format("{:.{}e}", v.number(), precision)
                             : fmt::format("{:.{}g}", v.number(), precision);
    }
    default:
      problem("the conversion '%{}' is not supported",
              letter >= ' ' && letter < 0x7f ? letter : '?');
  }
}

}  // namespace

std::string time_text(int64_t seconds, const std::string& format) {
  const Moment m = moment_of(seconds);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const bool bare = i + 1 < format.size() && format[i + 1] == '-';
    i += bare ? 2 : 1;
    if (i >= format.size()) problem("strftime_now: the format ends with a '%'");
    out += directive(m, format[i], bare);
  }
  return out;
}

std::string percent_text(const std::string& format, const Value& values, Budget& budget) {
  List all = {values};
  if (values.is_sequence(Sequence::Kind::tuple)) all = values.sequence().items;
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    if (++i < format.size() && format[i] == '%') {
      out += '%';
      continue;
    }
    Conversion c;
    for (; i < format.size() && (format[i] == '-' || format[i] == '0'); ++i)
      (format[i] == '-' ? c.left : c.zero) = true;
    c.width = small_number(format, i);
    if (i < format.size() && format[i] == '.') c.precision = small_number(format, ++i);
    if (i >= format.size()) problem("the format ends within a conversion");
    if (next >= all.size()) problem("too few values for the format");
    const Value& v = all[next++];
    if (v.is_undefined() && format[i] != 's') v.refuse_undefined();
    std::string s = converted(format[i], c, v, budget);
    const int64_t more = c.width - count_characters(s);
    const bool number = format[i] != 's' && format[i] != 'r';
    if (more > 0 && c.left)
      s.append(static_cast<size_t>(more), ' ');
    else if (more > 0 && c.zero && number)
      s.insert(s[0] == '-' ? 1 : 0, static_cast<size_t>(more), '0');
    else if (more > 0)
      s.insert(0, static_cast<size_t>(more), ' ');
    out += s;
    budget.limit(out.size());
  }
  if (next < all.size() && !values.is_dict()) problem("more values than the format takes");
  budget.text(out.size());
  return out;
}

std::string format_text(const std::string& format, const Arguments& a, Budget& budget) {
  std::string out;
  size_t automatic = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      out += c;
      ++i;
      continue;
    }
    const size_t end = format.find('}', i);
    if (c == '}' || end == std::string::npos) problem("format(): a single '{}'", c);
    const std::string field = format.substr(i + 1, end - i - 1);
    i = end;
    if (field.find_first_of(".[:!{") != std::string::npos)
      problem("format(): fields with '.', '[', ':' or '!' are not supported");
    const Value* v = nullptr;
    if (field.empty() || field.find_first_not_of("0123456789") == std::string::npos) {
      if (field.size() > 6) problem("format(): no value {}", field);
      const size_t index = field.empty() ? automatic++ : std::stoul(field);
      if (index >= a.plain.size()) problem("format(): no value {}", index);
      v = &a.plain[index];
    } else {
      for (const auto& entry : a.named)
        if (entry.first == field) v = &entry.second;
      if (v == nullptr) problem("format(): no value '{}'", field);
    }
    append_str(out, *v, budget);
    budget.limit(out.size());
  }
  budget.text(out.size());
  return out;
}

}  // namespace plait::jinja
