// One object of a tokenizer.json: its values by name, checked, and a refusal that says where.
//
//   Section file(json, "tokenizer.json", true);                  // a whole file
//   Section s(file.value("normalizer"), file.where("normalizer"));  // "tokenizer.json: normalizer"
//   const bool left = s.boolean("strip_left", true);
//   s.finish();   // throws when the object holds a name that was not asked for
//
// A name that is not understood may change ids, so it is never passed over.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "plait/base/error.h"

namespace plait {

class Section {
 public:
  // Throws unless it is an object.
  Section(const nlohmann::json& value, std::string where, bool is_file = false);

  const std::string& where() const { return where_; }
  std::string where(std::string_view name) const {
    return where_ + (is_file_ ? ": " : ".") + std::string(name);
  }

  bool has(const std::string& name);                     // there, and not null
  const nlohmann::json& value(const std::string& name);  // throws when missing
  const nlohmann::json& array(const std::string& name);

  bool boolean(const std::string& name, std::optional<bool> otherwise = std::nullopt);
  std::string string(const std::string& name);
  std::string string(const std::string& name, std::string_view otherwise);
  int64_t integer(const std::string& name, int64_t low, int64_t high);
  char32_t character(const std::string& name);  // a string of one character

  void ignore(const std::string& name) { asked_.insert(name); }  // changes no id
  void finish() const;

  template <class... Args>
  [[noreturn]] void error(std::string_view name, fmt::format_string<Args...> format,
                          Args&&... args) const {
    fail("{}: {}", where(name), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const nlohmann::json& value_;
  std::string where_;
  bool is_file_;
  std::set<std::string> asked_;
};

// Short words for what a JSON value is: "null", "a string", "an array".
std::string_view json_kind(const nlohmann::json& value);

}  // namespace plait
