#include "plait/infer/window.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plait/base/error.h"

namespace plait {

namespace {
constexpr int64_t kMultiple = 64;
}

int64_t positions_of(const Model& model) {
  for (const Extent& e : model.extents)
    if (e.name == "P") return e.size;
  const auto config = nlohmann::json::parse(model.config_json, nullptr, false);
  if (!config.is_object()) return 0;
  for (const char* key : {"n_positions", "max_position_embeddings"})
    if (const auto it = config.find(key); it != config.end() && it->is_number_integer())
      return std::max<int64_t>(it->get<int64_t>(), 0);
  return 0;
}

int64_t needed_tokens(int64_t prompt, int64_t more) {
  return prompt + std::max<int64_t>(more - 1, 0);
}

int64_t window_for(int64_t needed, int64_t positions) {
  const int64_t rounded = (std::max<int64_t>(needed, 1) + kMultiple - 1) / kMultiple * kMultiple;
  return positions > 0 ? std::min(rounded, positions) : rounded;
}

std::string left_out_note(int64_t prompt, int64_t more, int64_t window) {
  const int64_t needed = needed_tokens(prompt, more);
  if (needed <= window) return "";
  const std::string sees = fmt::format("the model sees the last {} tokens; ", window);
  if (prompt > window)
    return sees +
           fmt::format("the first {} of the prompt's {} are left out", prompt - window, prompt);
  return sees + fmt::format(
                    "of {} with the continuation, up to {} from the beginning on are left "
                    "out as it grows",
                    needed, needed - window);
}

}  // namespace plait
