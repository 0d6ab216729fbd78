#include "plait/tokens/jinja/text.h"

#include <algorithm>

#include "plait/tokens/jinja/unicode.h"

namespace plait::jinja {

namespace {

bool ends_line(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

std::string html_escaped(std::string_view s) {
  std::string out;
  for (const char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string replaced(const std::string& s, const std::string& from, const std::string& to,
                     int64_t count, Budget& budget) {
  budget.search(s.size(), from.size());
  std::string out;
  size_t at = 0;
  for (int64_t n = 0; count < 0 || n < count; ++n) {
    const size_t next = from.empty() ? at : s.find(from, at);
    if (next == std::string::npos) break;
    out.append(s, at, next - at);
    out += to;
    budget.limit(out.size());
    at = next + from.size();
    if (!from.empty()) continue;
    if (at >= s.size()) break;  // between all characters, and at both ends
    size_t end = at;
    next_character(s, end);
    out.append(s, at, end - at);
    at = end;
  }
  out.append(s, at, std::string::npos);
  budget.text(out.size());
  return out;
}

std::string stripped(std::string_view s, const std::string* chars, bool left, bool right) {
  if (chars == nullptr) {
    if (left) s = strip_left(s);
    if (right) s = strip_right(s);
    return std::string(s);
  }
  const std::vector<std::string> set = split_characters(*chars);
  const auto cut = [&](bool front) {
    return std::any_of(set.begin(), set.end(), [&](const std::string& c) {
      if (!(front ? s.starts_with(c) : s.ends_with(c))) return false;
      s = front ? s.substr(c.size()) : s.substr(0, s.size() - c.size());
      return true;
    });
  };
  if (left)
    while (cut(true))
      ;
  if (right)
    while (cut(false))
      ;
  return std::string(s);
}

std::vector<std::string> split_lines(std::string_view s, bool keep_ends) {
  std::vector<std::string> lines;
  for (size_t at = 0, begin = 0; at < s.size();) {
    size_t end = at;
    const char32_t c = next_character(s, at);
    if (!ends_line(c)) {
      if (at == s.size()) lines.emplace_back(s.substr(begin));
      continue;
    }
    if (c == '\r' && at < s.size() && s[at] == '\n') ++at;
    if (keep_ends) end = at;
    lines.emplace_back(s.substr(begin, end - begin));
    begin = at;
  }
  return lines;
}

}  // namespace plait::jinja
