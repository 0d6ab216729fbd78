// Model families built from a Hugging Face config.json, and MODEL on the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plait/model/folder.h"
#include "plait/model/model.h"

namespace plait {

// What stands at the end of the model: the loss over (labels, weights); the logits; or the loss of
// every token by itself, minus the logarithm of its label's probability, as result "token_loss"; or
// the loss of preference pairs (preference.h).
enum class Head : uint8_t { loss, logits, token_loss, preference };

// What to do with dropout in config.json, which plait has not: a model that is to be trained
// (Head::loss or Head::preference) is refused, unless the caller trains nothing or does without it.
enum class Dropout : uint8_t { refused_in_training, off };

// A batch of `slots` token slots of `slot_tokens` tokens each: extent T = slots * slot_tokens.
struct BatchShape {
  int64_t slots = 1;
  int64_t slot_tokens = 128;
};

// Builds the model that config.json describes. A key that would change the mathematics and is
// not supported is refused by name.
Model build_model(std::string_view config_json, const BatchShape& batch, Head head,
                  Dropout dropout = Dropout::refused_in_training);

// MODEL: a folder with config.json, a text IR file (*.plait), or a named configuration.
Model load_model(const std::string& model, const BatchShape& batch, Head head,
                 Dropout dropout = Dropout::refused_in_training);
std::vector<std::string> named_models();
std::string named_config(std::string_view name);  // its config.json

}  // namespace plait
