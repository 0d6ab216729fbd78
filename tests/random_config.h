// A random config.json of a random family, small, with the family's flags drawn too.
#pragma once

#include <string>

#include "draw.h"

namespace plait {

// What a random plan has to know of the model.
struct ConfigSizes {
  int64_t layers = 1, heads = 1, kv_heads = 1, head_size = 8;
};

// `tokens` is the longest sequence: windows are drawn shorter, and rotary scaling is drawn with
// bounds on both sides of it.
std::string random_config(Draw& d, int64_t tokens, ConfigSizes& sizes);

}  // namespace plait
