// The "post_processor" of a tokenizer.json: ids before and after those of a text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plait/tokens/vocabulary.h"

namespace plait {

struct PostProcess {
  std::vector<int32_t> before, after;
};

// Throws Error naming what is not supported; `where` opens the message. Every id must lie below
// `ids`.
PostProcess read_post_processor(const nlohmann::json& value, int64_t ids, const std::string& where);

}  // namespace plait
