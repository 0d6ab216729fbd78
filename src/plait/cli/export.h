// A checkpoint as a folder that others read.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "plait/model/model.h"

namespace plait {

// What a checkpoint remembers of the adapters that were trained.
nlohmann::ordered_json lora_facts(const LoraConfig& config);

// `step` -1: the last one that is whole. A model's folder, or an adapter's if one was trained.
// `storage`: of the weights; nothing: as the model says.
void export_checkpoint(const std::string& folder, int64_t step, const std::string& out,
                       std::optional<Dtype> storage);

}  // namespace plait
