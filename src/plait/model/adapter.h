// Adapters in the folders of Hugging Face's peft: adapter_config.json and
// adapter_model.safetensors.
//
//   const LoraConfig config = load_adapter_config("adapter");
//   const Model model = with_lora(base, config);
//   HostTensors parameters = load_parameters(base, "base");
//   parameters.merge(load_adapter(model, "adapter"));
//   ...
//   save_adapter(model, trained, "adapter");
//
// A folder is a stranger: a setting that would change the mathematics and is not supported (DoRA,
// ranks per module, biases, ...) is refused by name; every tensor must be a parameter and the other
// way round. Names in the file are PEFT's, without the adapter's own ("default").
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plait/model/lora.h"

namespace plait {

LoraConfig load_adapter_config(const std::string& folder);
// Its text; `source` opens the message of every Error.
LoraConfig parse_adapter_config(std::string_view json, const std::string& source);

// The parameters of `model` (with_lora) that the folder holds: A, B and the modules to save.
HostTensors load_adapter(const Model& model, const std::string& folder);

struct AdapterSaving {
  std::optional<Dtype> storage = {};  // nothing: what the model computes in
  bool run_folder = false;  // the folder may hold other things, but no model: a training run's
};

// Throws Error, now and not after hours of training, when save_adapter would refuse the folder: one
// that holds a model, or other things and no adapter.
void check_adapter_target(const std::string& folder, const AdapterSaving& saving = {});

// Writes both files into a new folder beside the target, syncs, and puts it in the target's place:
// the old adapter or the new one is there at every moment. Other files of the folder are kept.
// `parameters` may hold the base model's too; they are not written. A value that is not finite, in
// memory or as it would be stored, is refused.
void save_adapter(const Model& model, const HostTensors& parameters, const std::string& folder,
                  const AdapterSaving& saving = {});

}  // namespace plait
