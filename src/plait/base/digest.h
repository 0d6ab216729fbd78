// 64-bit digest (XXH3) of text or bytes: ranks compare it to know that they run the same thing.
#pragma once

#include <cstdint>
#include <string_view>

namespace plait {

uint64_t digest(std::string_view bytes);

}  // namespace plait
