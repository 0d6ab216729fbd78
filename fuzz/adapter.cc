// adapter_config.json, to a model with adapters: its names and numbers go into the rewrite.
#include "plait/model/adapter.h"

#include "fuzz.h"
#include "plait/model/families.h"

namespace plait {

namespace {

void run(std::string_view input) {
  static const Model base = build_model(named_config("gpt2-tiny"), {2, 8}, Head::loss);
  const LoraConfig config = parse_adapter_config(input, "adapter_config.json");
  print_model(with_lora(base, config));
}

std::vector<std::string> seeds() {
  return {R"({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 3, "lora_alpha": 7.5,
"target_modules": ["c_attn", "mlp.c_proj"], "use_rslora": true, "fan_in_fan_out": true,
"bias": "none", "lora_dropout": 0.1, "modules_to_save": null, "init_lora_weights": true})",
          R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": "all-linear",
"modules_to_save": ["ln_f"], "base_model_name_or_path": "gpt2", "rank_pattern": {},
"use_dora": false, "layers_to_transform": null})"};
}

}  // namespace

FuzzTarget fuzz_adapter() { return {"adapter", run, seeds}; }

}  // namespace plait
