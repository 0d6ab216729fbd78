// LoRA (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021) as a rewrite of a
// model: y = x W^T becomes y = x W^T + scale (x A^T) B^T, with A [R, in] and B [out, R] trained and
// everything else frozen.
//
//   LoraConfig config;
//   config.rank = 16, config.alpha = 32, config.targets = {"q_proj", "v_proj"};
//   Model model = with_lora(base, config);
//   HostTensors parameters = initial_parameters(model, seed);     // A drawn, B zero
//   for (auto& [name, t] : load_parameters(base, folder)) parameters[name] = std::move(t);
//   ... train as any other model, under any plan ...
//   save_adapter(model, trained, "adapter");                      // adapter.h
//   save_model(base, merge_lora(model, trained), "merged");
//
// Parameters of the base keep their names; adapters bear PEFT's names,
// "base_model.model.MODULE.lora_A.weight". A is split over a mesh by the letter of its input, B by
// that of its output; R is a letter of its own, whole unless a plan splits it.
//
// A module is a tensor of Hugging Face's files. Where it is fused (GPT-2's c_attn is q, k and v),
// it has one A, and every part has its rows of B.
#pragma once

#include <string>
#include <vector>

#include "plait/model/model.h"

namespace plait {

// Throws Error when a target or module to save is not there, or is no weight of a product (an
// embedding, a norm): by name.
Model with_lora(Model base, const LoraConfig& config);

struct LoraTarget {
  size_t weight = 0, a = 0, b = 0;  // index into Model::params
  bool transposed = false;          // the weight is [in, out], used as x W
};
// Of a model that with_lora made, in the order of the weights.
std::vector<LoraTarget> lora_targets(const Model& model);

// "model.layers.0.self_attn.q_proj": what the parameter belongs to in Hugging Face's files.
std::string module_name(const Param& param);
// Is `target` the module's name, or its last parts?
bool matches_module(std::string_view module, std::string_view target);
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

// The base model's parameters with W + scale B A in the place of W, added up in f64 and rounded
// once.
HostTensors merge_lora(const Model& model, const HostTensors& parameters);

}  // namespace plait
