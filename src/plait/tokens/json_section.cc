#include "plait/tokens/json_section.h"

#include "plait/tokens/utf8.h"

namespace plait {

using nlohmann::json;

std::string_view json_kind(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::boolean:
      return "a boolean";
    case json::value_t::string:
      return "a string";
    case json::value_t::array:
      return "an array";
    case json::value_t::object:
      return "an object";
    default:
      return "a number";
  }
}

Section::Section(const json& value, std::string where, bool is_file)
    : value_(value), where_(std::move(where)), is_file_(is_file) {
  if (!value.is_object()) fail("{}: expected an object, found {}", where_, json_kind(value));
}

bool Section::has(const std::string& name) {
  asked_.insert(name);
  const auto found = value_.find(name);
  return found != value_.end() && !found->is_null();
}

const json& Section::value(const std::string& name) {
  asked_.insert(name);
  const auto found = value_.find(name);
  if (found == value_.end()) fail("{}: '{}' is missing", where_, name);
  return *found;
}

const json& Section::array(const std::string& name) {
  const json& v = value(name);
  if (!v.is_array()) error(name, "expected an array, found {}", json_kind(v));
  return v;
}

bool Section::boolean(const std::string& name, std::optional<bool> otherwise) {
  if (otherwise && !has(name)) return *otherwise;
  const json& v = value(name);
  if (!v.is_boolean()) error(name, "expected true or false, found {}", json_kind(v));
  return v.get<bool>();
}

std::string Section::string(const std::string& name) {
  const json& v = value(name);
  if (!v.is_string()) error(name, "expected a string, found {}", json_kind(v));
  return v.get<std::string>();
}

std::string Section::string(const std::string& name, std::string_view otherwise) {
  return has(name) ? string(name) : std::string(otherwise);
}

int64_t Section::integer(const std::string& name, int64_t low, int64_t high) {
  const json& v = value(name);
  if (!v.is_number_integer())
    error(name, "expected a whole number from {} to {}, found {}", low, high,
          v.is_number() ? v.dump() : std::string(json_kind(v)));
  const bool too_large = v.is_number_unsigned() && v.get<uint64_t>() > INT64_MAX;
  const int64_t n = too_large ? INT64_MAX : v.get<int64_t>();
  if (too_large || n < low || n > high)
    error(name, "expected a whole number from {} to {}, found {}", low, high, v.dump());
  return n;
}

char32_t Section::character(const std::string& name) {
  const std::string s = string(name);
  if (s.empty() || utf8_length(s[0]) != s.size())
    error(name, "expected one character, found '{}'", s);
  return utf8_at(s, 0);
}

void Section::finish() const {
  for (const auto& [name, unused] : value_.items())
    if (!asked_.contains(name))
      fail("{}: not understood, and it may change token ids: '{}'", where_, name);
}

}  // namespace plait
