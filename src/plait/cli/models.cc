// plait models, plait print MODEL.
#include <memory>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/report/table.h"

namespace plait {

namespace {

void list_models() {
  Table table({"name", "parameters", "layers", "width", "vocabulary"}, "");
  for (const std::string& name : named_models()) {
    const Model model = load_model(name, {1, 64}, Head::logits);
    table.row({name, grouped(model.parameter_count()), std::to_string(model.uses.size() - 2),
               std::to_string(model.extent("D").size), grouped(model.extent("V").size)});
  }
  fmt::print("{}", table.text());
}

}  // namespace

void add_models(CLI::App& app) {
  app.add_subcommand("models", "the named configurations")->callback(list_models);
}

void add_print(CLI::App& app) {
  CLI::App* command = app.add_subcommand("print", "a model as text, in plait's own format");
  auto options = std::make_shared<CommonOptions>();
  auto logits = std::make_shared<bool>(false);
  add_model_option(*command, *options);
  add_batch_options(*command, *options);
  command->add_flag("--logits", *logits, "end in logits, for inference, and not in the loss");
  command->callback([options, logits] {
    fmt::print("{}", print_model(open_model(*options, *logits ? Head::logits : Head::loss)));
  });
}

}  // namespace plait
