// Patterns of names, as plans and optimizer groups have them.
#pragma once

#include <string_view>

namespace plait {

bool glob_match(std::string_view pattern, std::string_view text);  // * matches anything

}  // namespace plait
