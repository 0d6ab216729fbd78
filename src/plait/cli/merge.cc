// plait merge MODEL_FOLDER ADAPTER_FOLDER OUT: an adapter added into the weights it is for.
#include <cstdio>
#include <memory>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/model/adapter.h"
#include "plait/model/folder.h"
#include "plait/model/lora.h"

namespace plait {

namespace {

struct MergeOptions {
  std::string model, adapter, out, save_dtype;
};

void run_merge(const MergeOptions& o) {
  check_can_save(o.out);
  const Model base = load_model(o.model, {1, 1}, Head::logits);
  const Model model = with_lora(base, load_adapter_config(o.adapter));
  FileReport as_read;
  HostTensors parameters = load_parameters(base, o.model, &as_read);
  for (auto& [name, t] : load_adapter(model, o.adapter)) parameters[name] = std::move(t);
  SaveOptions options;
  options.carry = o.model;
  options.as_read = &as_read;
  options.storage = save_dtype(o.save_dtype);
  save_model(base, merge_lora(model, parameters), o.out, options);
  fmt::print("merged the adapters of {} weights; saved in '{}'\n", lora_targets(model).size(),
             o.out);
}

}  // namespace

void add_merge(CLI::App& app) {
  CLI::App* command = app.add_subcommand("merge", "add an adapter into its model's weights");
  auto o = std::make_shared<MergeOptions>();
  command->add_option("MODEL_FOLDER", o->model, "the model that the adapter is for")->required();
  command->add_option("ADAPTER_FOLDER", o->adapter, "adapter_config.json and its weights")
      ->required();
  command->add_option("OUT", o->out, "folder to save the merged model in")
      ->required()
      ->check(a_path());
  add_save_dtype(*command, o->save_dtype);
  command->callback([o] { run_merge(*o); });
}

}  // namespace plait
