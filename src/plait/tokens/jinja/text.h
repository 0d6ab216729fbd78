// Work on Python strings that methods and filters share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plait/tokens/jinja/value.h"

namespace plait::jinja {

std::string html_escaped(std::string_view s);
std::string replaced(const std::string& s, const std::string& from, const std::string& to,
                     int64_t count, Budget& budget);
// Both ends without white space, or without the characters of `chars`.
std::string stripped(std::string_view s, const std::string* chars, bool left, bool right);
std::vector<std::string> split_lines(std::string_view s, bool keep_ends);

}  // namespace plait::jinja
