// plait checkpoint export FOLDER OUT: a checkpoint as a model folder, or as an adapter's.
#include "plait/cli/export.h"

#include <cstdio>

#include "plait/cli/common.h"
#include "plait/io/checkpoint.h"
#include "plait/io/files.h"
#include "plait/model/adapter.h"
#include "plait/model/folder.h"
#include "plait/model/lora.h"
#include "plait/tokens/tokenizer_files.h"

namespace plait {

namespace {

using Json = nlohmann::ordered_json;

// The model without adapters, as the run had it.
Model base_of(const Json& description, int64_t slot_tokens, Dtype dtype) {
  const std::string config = description.at("config"), text = description.at("text");
  Model m = config.empty() ? parse_model(text, "checkpoint")
                           : build_model(config, {1, slot_tokens}, Head::loss, Dropout::off);
  return with_dtype(std::move(m), dtype);
}

LoraConfig lora_of(const Json& facts) {
  LoraConfig c;
  c.rank = facts.at("rank");
  c.alpha = facts.at("alpha");
  c.targets = facts.at("targets").get<std::vector<std::string>>();
  c.rslora = facts.at("rslora");
  c.modules_to_save = facts.at("modules_to_save").get<std::vector<std::string>>();
  c.base_model = facts.at("base_model");
  c.dropout = facts.value("dropout", 0.0);
  return c;
}

}  // namespace

Json lora_facts(const LoraConfig& c) {
  return {{"rank", c.rank},
          {"alpha", c.alpha},
          {"targets", c.targets},
          {"rslora", c.rslora},
          {"modules_to_save", c.modules_to_save},
          {"base_model", c.base_model},
          {"dropout", c.dropout}};
}

void export_checkpoint(const std::string& folder, int64_t step, const std::string& out,
                       std::optional<Dtype> storage) {
  const CheckpointReader reader(folder);
  std::vector<std::string> remarks;
  std::optional<Checkpoint> c;
  if (step >= 0)
    c = reader.load(step);
  else
    c = reader.load_latest(&remarks);
  for (const std::string& r : remarks) fmt::print("note: {}\n", r);
  if (!c) fail("'{}': there is no checkpoint in it that is whole", folder);
  HostTensors parameters;
  for (auto& [name, tensor] : c->tensors)
    if (name.starts_with("param/")) parameters[name.substr(6)] = std::move(tensor);
  if (parameters.empty()) fail("'{}' step {}: it holds no parameters", folder, c->step);
  const Json& description = c->trainer.at("description");
  const Model base = base_of(description, c->trainer.at("identity").at("tokens_of_a_slot"),
                             parameters.begin()->second.dtype);
  const bool adapter = !description.at("adapter").is_null();
  if (adapter) {
    save_adapter(with_lora(base, lora_of(description.at("adapter"))), parameters, out,
                 {.storage = storage});
  } else {
    SaveOptions options;
    options.storage = storage;
    const std::string source = description.at("model");
    if (is_folder(source)) options.carry = source;
    const std::string tokenizer = description.at("tokenizer");
    const bool known = tokenizer == "bytes" || is_folder(tokenizer) || file_exists(tokenizer);
    if (!known) fmt::print("note: there is no tokenizer '{}' any more\n", tokenizer);
    if (known && tokenizer != source) options.tokenizer = tokenizer_files(tokenizer);
    save_model(base, parameters, out, options);
  }
  fmt::print("step {} of '{}' saved as {} in '{}'\n", c->step, folder,
             adapter ? "an adapter" : "a model", out);
}

}  // namespace plait
