// JSON from outside, strictly: duplicate names are an error at any level (parsers differ in
// which one they take), as are invalid UTF-8, bytes after the value and deep nesting.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace plait {

// `source` opens the message of every Error. At most `max_members` names in one object.
nlohmann::json parse_json(std::string_view text, const std::string& source, int max_depth,
                          size_t max_members);
// The same, with the names of an object in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& source,
                                          int max_depth, size_t max_members);

}  // namespace plait
