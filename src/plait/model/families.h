// Model families built from a Hugging Face config.json, and MODEL on the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plait/model/model.h"

namespace plait {

// What stands at the end of the model: the loss over (labels, weights); the logits; or the loss of
// every token by itself, minus the logarithm of its label's probability, as result "token_loss".
enum class Head : uint8_t { loss, logits, token_loss };

// A batch of `slots` token slots of `slot_tokens` tokens each: extent T = slots * slot_tokens.
struct BatchShape {
  int64_t slots = 1;
  int64_t slot_tokens = 128;
};

// Builds the model that config.json describes. A key that would change the mathematics and is
// not supported is refused by name.
Model build_model(std::string_view config_json, const BatchShape& batch, Head head);

// MODEL: a folder with config.json, a text IR file (*.plait), or a named configuration.
Model load_model(const std::string& model, const BatchShape& batch, Head head);
std::vector<std::string> named_models();
std::string named_config(std::string_view name);  // its config.json

// Parameters of a Hugging Face folder, converted to the model's element type. Throws when a
// parameter is not in the files, when a tensor of the files is no parameter, on wrong shapes.
HostTensors load_parameters(const Model& model, const std::string& folder);

// Throws Error, now and not after hours of training, when save_model would refuse the folder.
// Returns its path with links resolved.
std::string check_save_target(const std::string& folder);

// Writes config.json (or model.plait for a text model) and model.safetensors into a new folder
// beside the target, syncs, and renames it into place; an existing folder is replaced whole.
void save_model(const Model& model, const HostTensors& parameters, const std::string& folder);

}  // namespace plait
