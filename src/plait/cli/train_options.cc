#include "plait/cli/train_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace plait {

namespace {

// CLI11's own range lets NaN pass.
CLI::Validator number_in(double low, double high) {
  const auto check = [low, high](const std::string& text) {
    double x = NAN;
    const auto r = std::from_chars(text.data(), text.data() + text.size(), x);
    const bool whole = r.ec == std::errc() && r.ptr == text.data() + text.size();
    if (whole && x >= low && x <= high) return std::string();
    return fmt::format("found '{}', expected a number from {} to {}", text, low, high);
  };
  return CLI::Validator(check, fmt::format("{} to {}", low, high));
}

void add_length(CLI::App& command, TrainOptions& o) {
  const std::string group = "Length and rate";
  command.add_option("--steps", o.steps, "optimizer steps; left out: 100, or as --epochs says")
      ->check(whole_number(1, kMaxCount))
      ->group(group);
  command.add_option("--epochs", o.epochs, "passes through the data, instead of --steps")
      ->check(whole_number(1, kMaxCount))
      ->excludes("--steps")
      ->group(group);
  LearningRate& r = o.config.rate;
  command.add_option("--learning-rate", r.peak, "the largest one")
      ->check(number_in(0, 1e6))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--schedule", r.kind,
          "of the learning rate: " + fmt::format("{}", fmt::join(learning_rate_kinds(), ", ")))
      ->check(CLI::IsMember(learning_rate_kinds()))
      ->capture_default_str()
      ->group(group);
  command.add_option("--warmup", r.warmup_steps, "steps over which the rate grows")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str()
      ->group(group);
  command.add_option("--final-ratio", r.final_ratio, "last rate over the largest")
      ->check(number_in(0, 1))
      ->capture_default_str()
      ->group(group);
  command.add_option("--decay", r.decay, "how wsd's rate falls")
      ->check(CLI::IsMember(decay_kinds()))
      ->capture_default_str()
      ->group(group);
  command.add_option("--decay-share", r.decay_share, "of the steps, in which wsd's rate falls")
      ->check(number_in(0, 1))
      ->capture_default_str()
      ->group(group);
}

// One flag for each setting that some optimizer has.
void add_optimizer(CLI::App& command, TrainOptions& o) {
  const std::string group = "Optimizer";
  command
      .add_option("--optimizer", o.optimizer, fmt::format("{}", fmt::join(optimizer_names(), ", ")))
      ->check(CLI::IsMember(optimizer_names()))
      ->capture_default_str()
      ->group(group);
  std::map<std::string, std::string> settings = {
      {"weight_decay", "of parameters with two dimensions or more"},
      {"max_norm", "of the gradient, clipped by its global norm; 0: no clipping"}};
  for (const OptimizerDef& def : all_optimizers())
    for (const Setting& s : def.settings) {
      std::string& help = settings[std::string(s.name)];
      help += (help.empty() ? fmt::format("{}; ", s.summary) : std::string(", ")) +
              fmt::format("{} {}", def.name, number_text(s.value));
    }
  for (const auto& [name, help] : settings) {
    std::string flag = name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    // Muon's steps are no training steps.
    if (command.get_option_no_throw("--" + flag) != nullptr) flag = "optimizer-" + flag;
    command
        .add_option_function<double>(
            "--" + flag, [&o, name = name](double value) { o.settings.emplace_back(name, value); },
            help)
        ->group(group);
  }
  command
      .add_option("--no-decay", o.no_decay,
                  "names without weight decay, * matches anything, such as '*embed*'")
      ->group(group);
  command
      .add_option("--trained", o.trained,
                  "names of the parameters that are trained, all others frozen: '*layers.11.*'")
      ->group(group);
}

void add_adapters(CLI::App& command, TrainOptions& o) {
  const std::string group = "Adapters and preferences";
  command
      .add_option("--lora-rank", o.lora.rank, "train adapters of this rank, all else frozen; 0: no")
      ->check(whole_number(0, 1 << 16))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--lora-alpha", o.lora.alpha, "the adapter's result is scaled by alpha / rank")
      ->capture_default_str()
      ->group(group);
  command.add_option("--lora-targets", o.lora.targets, "modules with adapters, or all-linear")
      ->capture_default_str()
      ->group(group);
  command.add_flag("--lora-rslora", o.lora.rslora, "scale by alpha / sqrt(rank)")->group(group);
  command.add_option("--lora-modules-to-save", o.lora.modules_to_save, "trained whole beside them")
      ->group(group);
  command.add_option("--adapter", o.adapter, "folder of an adapter (PEFT) to start from")
      ->check(a_path())
      ->group(group);
  command.add_flag("--merge", o.merge, "save the model with the adapter added into its weights")
      ->group(group);
  command.add_option("--beta", o.preference.beta, "of direct preference optimization")
      ->check(number_in(1e-6, 1e3))
      ->capture_default_str()
      ->group(group);
  command.add_option("--preference-loss", o.preference.variant, "of preference pairs")
      ->check(CLI::IsMember({"sigmoid", "hinge", "ipo"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--label-smoothing", o.preference.label_smoothing,
                  "share of pairs taken to be swapped")
      ->check(number_in(0, 0.5))
      ->capture_default_str()
      ->group(group);
}

void add_watching(CLI::App& command, TrainOptions& o) {
  const std::string group = "Validation, metrics, samples";
  TrainConfig& c = o.config;
  const auto count = [&](const char* flag, int64_t& value, const char* help) {
    command.add_option(flag, value, help)
        ->check(whole_number(0, kMaxCount))
        ->capture_default_str()
        ->group(group);
  };
  count("--eval-every", c.eval_every, "steps between validations; 0: at the end");
  count("--eval-batches", c.eval_batches, "of one step's tokens; 0: all");
  count("--patience", c.patience, "validations without a better one before the run ends; 0: never");
  command.add_option("--least-gain", c.least_gain, "what --patience counts as better")
      ->check(number_in(0, 1e9))
      ->capture_default_str()
      ->group(group);
  command.add_option("--metrics", c.metrics, "write JSON lines there, one for each step")
      ->check(a_path())
      ->group(group);
  command.add_option("--tensorboard", c.tensorboard, "folder for TensorBoard's event files")
      ->check(a_path())
      ->group(group);
  count("--noise-every", c.noise_every, "steps between measurements of the gradient noise scale");
  command.add_option("--spike-deviations", c.spike_deviations, "how far a loss must stand out")
      ->check(number_in(1, 1e6))
      ->capture_default_str()
      ->group(group);
  count("--sample-every", o.samples.every, "steps between samples; 0: none");
  command.add_option("--sample-prompt", o.samples.prompts, "text to continue, once or more")
      ->group(group);
  count("--sample-tokens", o.samples.tokens, "of a sample");
  command
      .add_option("--sample-temperature", o.samples.temperature, "0: always the likeliest token")
      ->check(number_in(0, 100))
      ->capture_default_str()
      ->group(group);
}

void add_profile(CLI::App& command, TrainOptions& o) {
  const std::string group = "Where the time goes";
  ProfileConfig& p = o.profile;
  command
      .add_flag(
          "--profile", p.table,
          "after the run, print time by op, its share of what this machine allows, and the gap")
      ->group(group);
  command
      .add_option("--profile-steps", p.steps,
                  "last steps of the run to take the mean of; not its first")
      ->check(whole_number(1, 1000))
      ->capture_default_str()
      ->group(group);
  command.add_flag("--profile-shapes", p.by_shape, "a row for every op and its shapes")
      ->group(group);
  command.add_option("--profile-json", p.json, "write the profile there as JSON")
      ->check(a_path())
      ->group(group);
  command.add_option("--trace", p.trace, "write the last step there, for ui.perfetto.dev")
      ->check(a_path())
      ->group(group);
}

void add_files(CLI::App& command, TrainOptions& o) {
  const std::string group = "Files";
  TrainConfig& c = o.config;
  command
      .add_option("--init", o.init,
                  "folder with the parameters to start from; left out: MODEL's, if it has some")
      ->check(a_path())
      ->group(group);
  command.add_flag("--from-scratch", o.from_scratch, "draw parameters, though MODEL has some")
      ->excludes("--init")
      ->group(group);
  command.add_option("--out", o.out, "folder to save the trained model or adapter in")
      ->check(a_path())
      ->group(group);
  add_save_dtype(command, o.save_dtype);
  command.get_option("--save-dtype")->group(group);
  command
      .add_flag("--no-dropout", o.no_dropout, "train without the dropout that config.json asks for")
      ->group(group);
  command.add_option("--checkpoints", c.checkpoints, "folder for checkpoints")
      ->check(a_path())
      ->group(group);
  command.add_option("--checkpoint-every", c.checkpoint_every, "steps; 0: when the run ends")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str()
      ->group(group);
  command.add_option("--keep-last", c.keep_last, "checkpoints to keep; 0: all")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str()
      ->group(group);
  command.add_flag("--resume", o.resume, "go on from the last checkpoint, if there is one")
      ->group(group);
  command.add_flag("--dry-run", o.dry_run, "say what would happen, and end")->group(group);
  command.add_flag("--json", o.json, "what --dry-run says, as JSON")->group(group);
}

}  // namespace

void note_given(const CLI::App& command, TrainOptions& o) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0) continue;
    if (name.starts_with("--lora-") && name != "--lora-rank") o.of_adapters.push_back(name);
    if (name == "--beta" || name == "--preference-loss" || name == "--label-smoothing")
      o.of_pairs.push_back(name);
    if (name == "--profile-steps" || name == "--profile-shapes") o.of_profile.push_back(name);
  }
}

void add_train_options(CLI::App& command, TrainOptions& o) {
  add_model_option(command, o);
  add_data_options(command, o.data);
  command.add_option("--plan", o.plan, "plan file; left out: one rank")->check(a_path());
  command.add_option("--microbatches", o.microbatches, "micro-batches of a step, without a plan")
      ->check(whole_number(1, 1 << 16))
      ->excludes("--plan")
      ->capture_default_str();
  command.add_option("--recompute", o.recompute, "none, selective or full, whatever the plan says")
      ->check(CLI::IsMember({"none", "selective", "full"}));
  add_batch_options(command, o);
  add_ranks_option(command, o);
  add_threads_option(command, o);
  command.add_option("--seed", o.config.seed, "of parameters and data order")
      ->check(whole_number(0, INT64_MAX))
      ->capture_default_str();
  add_length(command, o);
  add_optimizer(command, o);
  add_adapters(command, o);
  add_watching(command, o);
  add_profile(command, o);
  add_files(command, o);
}

}  // namespace plait
