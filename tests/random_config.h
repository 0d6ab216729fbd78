// A random config.json of a random family, and random adapters on it: small, with the
// flags of the family drawn too.
#pragma once

#include <string>

#include "draw.h"
#include "plait/model/model.h"

namespace plait {

// What a random plan has to know of the model.
struct ConfigSizes {
  int64_t layers = 1, heads = 1, kv_heads = 1, head_size = 8;
};

// `tokens` is the longest sequence: windows are drawn shorter, and rotary scaling is drawn with
// bounds on both sides of it.
std::string random_config(Draw& d, int64_t tokens, ConfigSizes& sizes);

// Low-rank adapters on some or all of the products of such a model.
LoraConfig random_lora(Draw& d, const std::string& config);
std::string print_lora(const LoraConfig& lora);  // one line of JSON
LoraConfig parse_lora(const std::string& text);

}  // namespace plait
