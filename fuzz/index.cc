// model.safetensors.index.json.
#include "fuzz.h"
#include "plait/io/tensor_folder.h"

namespace plait {

namespace {

void run(std::string_view input) { parse_shard_index(input, "index"); }

std::vector<std::string> seeds() {
  return {R"({"metadata": {"total_size": 24, "format": "pt"}, "weight_map": {
  "lm_head.weight": "model-00002-of-00002.safetensors",
  "model.norm.weight": "model-00001-of-00002.safetensors"}})",
          R"({"metadata": {"total_size": 1.5e10}, "weight_map": {"a": "x.safetensors"}})",
          R"({"weight_map": {"größe \"x\"": "model.safetensors"}, "metadata": null})"};
}

}  // namespace

FuzzTarget fuzz_index() { return {"index", run, seeds}; }

}  // namespace plait
