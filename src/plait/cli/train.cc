// plait train MODEL --data FILE.
#include <cstdio>
#include <memory>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/io/files.h"
#include "plait/report/explain.h"
#include "plait/report/progress.h"
#include "plait/report/table.h"
#include "plait/tokens/tokenizer.h"

namespace plait {

namespace {

struct TrainOptions : CommonOptions {
  std::string data, out, init;
  int64_t microbatches = 1;  // without a plan
  TrainConfig config;
};

void run_train(TrainOptions o) {
  if (!o.out.empty()) check_can_save(o.out);
  if (!o.init.empty() && !is_folder(o.init))
    fail("--init '{}': {}; needs a folder with config.json and model.safetensors", o.init,
         file_exists(o.init) ? "a file" : "nothing is there");
  const Model model = open_model(o, Head::loss);
  DataConfig data_config;
  data_config.train = {{o.data}};
  data_config.slot_tokens = o.slot_tokens;
  data_config.vocabulary = model.extent("V").size;
  data_config.seed = o.config.seed;
  const auto tokenizer = byte_tokenizer();
  const auto data = Data::open(data_config, *tokenizer);
  if (o.plan.empty() && o.ranks > 1)
    fail("--ranks {} without a plan; without one a single rank trains, so give --plan FILE",
         o.ranks);
  const Plan plan = o.plan.empty() ? one_rank_plan(o.microbatches) : load_plan(o.plan);
  const LowerOptions options = lower_options(o);
  {
    const Compiled c = compile(model, plan, o.ranks, options);
    fmt::print("{}{}{}", explain_model(model), explain_mesh(model, plan, c.lowered),
               explain_notes(notes(c.lowered.programs, c.report)));
  }
  o.config.optimizer = options.optimizer;
  const HostTensors initial =
      o.init.empty() ? initial_parameters(model, o.config.seed) : load_parameters(model, o.init);
  Trainer trainer(model, plan, *data, o.config);
  trainer.set_parameters(initial);
  Progress progress(stdout);
  std::optional<double> validation;
  trainer.run([&](const StepReport& r) {
    progress.step(r);
    validation = r.validation_loss;
  });
  check_counters(trainer.session());
  fmt::print("  validation loss {:.4f} nats per byte on {} bytes\n",
             validation ? *validation : trainer.validation_loss(),
             grouped(data->validation_labels(trainer.layout(), trainer.eval_batches())));
  if (o.out.empty()) return;
  save_model(model, trainer.parameters(), o.out);
  fmt::print("  saved in '{}'\n", o.out);
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "train a model on the bytes of a text file");
  auto o = std::make_shared<TrainOptions>();
  add_model_option(*command, *o);
  command->add_option("--data", o->data, "text file; its last 5 % are held out")
      ->check(a_path())
      ->required();
  command->add_option("--plan", o->plan, "plan file; left out: one rank")->check(a_path());
  command->add_option("--microbatches", o->microbatches, "micro-batches of a step, without a plan")
      ->check(whole_number(1, 1 << 16))
      ->excludes("--plan")
      ->capture_default_str();
  add_batch_options(*command, *o);
  add_world_options(*command, *o);
  TrainConfig& c = o->config;
  command->add_option("--steps", c.steps, "optimizer steps")
      ->check(whole_number(1, kMaxCount))
      ->capture_default_str();
  command->add_option("--learning-rate", c.learning_rate, "the largest one")->capture_default_str();
  command->add_option("--warmup", c.warmup_steps, "steps until then")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command->add_option("--seed", c.seed, "of parameters and data order")
      ->check(whole_number(0, INT64_MAX))
      ->capture_default_str();
  command->add_option("--eval-every", c.eval_every, "steps between validations; 0: at the end")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command->add_option("--eval-batches", c.eval_batches, "of one step's tokens; 0: all")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command->add_option("--metrics", c.metrics, "write JSON lines there, one for each step")
      ->check(a_path());
  command->add_option("--init", o->init, "folder with the parameters to start from")
      ->check(a_path());
  command->add_option("--out", o->out, "folder to save the trained model in")->check(a_path());
  command->callback([o] { run_train(*o); });
}

}  // namespace plait
