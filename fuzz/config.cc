// config.json, to a model. Names of layers and sizes come from the file, so this holds readers to
// bounds too: an input that asks for a thousand layers costs time, and must not cost more.
#include "fuzz.h"
#include "plait/model/families.h"

namespace plait {

namespace {

void run(std::string_view input) {
  const Model m = build_model(input, {2, 8}, Head::loss);
  m.parameter_count();
}

std::vector<std::string> seeds() { return {named_config("llama-tiny"), named_config("gpt2-tiny")}; }

}  // namespace

FuzzTarget fuzz_config() { return {"config", run, seeds}; }

}  // namespace plait
