// The tokenizer and chat template of a model folder, as data/ wants them.
//
//   const TextTools text = load_text_tools("models/smollm");   // empty path: bytes, no template
//   const auto data = Data::open(config, *text.tokenizer, text.renderer);
#pragma once

#include <memory>
#include <string>

#include "plait/data/data.h"
#include "plait/tokens/tokenizer.h"

namespace plait {

struct TextTools {
  std::unique_ptr<Tokenizer> tokenizer;
  ChatRenderer renderer;
};
// A folder, or one file (tokenizer.json, .model), which then has no template.
TextTools load_text_tools(const std::string& path);

}  // namespace plait
