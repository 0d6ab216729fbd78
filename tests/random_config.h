// A tiny random model of any family, as its config.json: sizes, heads, and every switch that the
// family has.
#pragma once

#include <string>

#include "draw.h"

namespace plait {

struct RandomSizes {
  int64_t layers = 0, heads = 0, kv_heads = 0, head_size = 0;
};

std::string random_config(Draw& draw, RandomSizes& sizes);

}  // namespace plait
