// plait train MODEL --data PATH, or plait train RUN.toml.
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "plait/base/glob.h"
#include "plait/cli/commands.h"
#include "plait/cli/export.h"
#include "plait/cli/train_profile.h"
#include "plait/exec/measure.h"
#include "plait/infer/generate.h"
#include "plait/io/files.h"
#include "plait/model/adapter.h"
#include "plait/model/folder.h"
#include "plait/model/preference.h"
#include "plait/report/explain.h"
#include "plait/report/explain_data.h"
#include "plait/report/profile.h"
#include "plait/report/progress.h"
#include "plait/report/table.h"
#include "plait/tokens/tokenizer_files.h"
#include "plait/train/stop.h"

namespace plait {

namespace {

constexpr double kEstimateSeconds = 3;

nlohmann::json optimizer_facts(const Optimizer& o) {
  nlohmann::json facts = {{"weight_decay", o.weight_decay}, {"max_norm", o.max_norm}};
  for (const auto& [name, value] : o.settings) facts[name] = value;
  for (const ParamGroup& g : o.groups) facts["no_decay"].push_back(g.match);
  return facts;
}

// Each pattern must match a parameter.
void freeze_others(Model& model, const std::vector<std::string>& trained) {
  std::vector<bool> used(trained.size(), false);
  for (Param& p : model.params) {
    p.frozen = true;
    for (size_t i = 0; i < trained.size(); ++i)
      if (glob_match(trained[i], p.name)) {
        p.frozen = false;
        used[i] = true;
      }
  }
  for (size_t i = 0; i < trained.size(); ++i)
    if (!used[i])
      fail("--trained '{}' matches no parameter of '{}'; `plait print` lists them", trained[i],
           model.name);
}

class TrainCommand {
 public:
  explicit TrainCommand(TrainOptions options) : o_(std::move(options)) {}
  int run();

 private:
  bool adapters() const { return o_.lora.rank > 0 || !o_.adapter.empty(); }
  void check_paths();
  std::string from_out(const std::string& path) const;
  bool writes_into_out() const;
  void check_logs();
  void open();
  void open_model_and_data();
  Model open_head(Head head, BatchShape shape) const;
  Plan open_plan() const;
  void set_steps();
  HostTensors starting_parameters();
  void describe();
  nlohmann::ordered_json facts() const;
  void start();
  bool resume();
  void step_done(const StepReport& r, Progress& progress);
  void sample(int64_t step);
  void finish(Ending ending);
  void save();
  // Where a validation may end the run, --out holds the model that did best.
  bool keeps_best() const { return o_.config.patience > 0 && !o_.out.empty(); }

  TrainOptions o_;
  TrainProfile profile_{o_};
  std::optional<LoraConfig> lora_;
  Model base_, model_;  // without and with the adapter
  Text text_;
  std::unique_ptr<Data> data_;
  Plan plan_;
  LowerOptions lowering_;
  std::optional<Compiled> compiled_;
  std::optional<StepEstimate> estimate_;
  FileReport as_read_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Generator> generator_;
  int64_t done_ = 0;  // steps of the checkpoint that is there
  std::optional<double> validation_;
  double measured_seconds_ = 0;
  int64_t measured_steps_ = 0;
  std::optional<int64_t> best_step_;  // saved in --out by this run
};

// ---- what is asked for ----------------------------------------------------------------------

// `path` as seen from the folder --out; empty when either is.
std::string TrainCommand::from_out(const std::string& path) const {
  if (path.empty() || o_.out.empty()) return "";
  const auto whole = [](const std::string& p) {
    const auto normal = std::filesystem::absolute(p).lexically_normal();
    return normal.has_filename() ? normal : normal.parent_path();
  };
  return whole(path).lexically_relative(whole(o_.out)).string();
}

// Checkpoints and the like in the folder of the result.
bool TrainCommand::writes_into_out() const {
  const auto inside = [&](const std::string& path) {
    const std::string at = from_out(path);
    return !at.empty() && at != "." && at != ".." && !at.starts_with("../");
  };
  const TrainConfig& c = o_.config;
  return inside(c.checkpoints) || inside(c.metrics) || inside(c.tensorboard) ||
         inside(o_.profile.json) || inside(o_.profile.trace);
}

void TrainCommand::check_paths() {
  const bool adapter = adapters() && !o_.merge;
  if (from_out(o_.config.checkpoints) == ".")
    fail("--out and --checkpoints are both '{}'; give each a folder of its own", o_.out);
  SaveOptions saving;
  saving.run_folder = writes_into_out();
  if (!o_.out.empty() && adapter) check_adapter_target(o_.out, {.run_folder = saving.run_folder});
  if (!o_.out.empty() && !adapter) check_can_save(o_.out, saving);
  if (!o_.init.empty() && !is_folder(o_.init))
    fail("--init '{}': {}; needs a folder with config.json and parameters", o_.init,
         file_exists(o_.init) ? "a file" : "nothing is there");
  if (o_.plan.empty() && o_.ranks > 1)
    fail("--ranks {} without a plan; without one a single rank trains, so give --plan FILE",
         o_.ranks);
  if (o_.merge && !adapters())
    fail("--merge: there is no adapter to merge; set --lora-rank or --adapter");
  if (!o_.adapter.empty() && o_.lora.rank > 0)
    fail("--adapter '{}' has a rank of its own; leave --lora-rank out", o_.adapter);
  if (o_.config.checkpoint_every > 0 && o_.config.checkpoints.empty())
    fail("--checkpoint-every {} needs --checkpoints FOLDER", o_.config.checkpoint_every);
  if (o_.resume && o_.config.checkpoints.empty()) fail("--resume needs --checkpoints FOLDER");
  if (o_.samples.every > 0 && o_.samples.prompts.empty())
    fail("--sample-every {} needs a --sample-prompt", o_.samples.every);
  if (!o_.of_adapters.empty() && o_.lora.rank == 0)
    fail("{}: {}; {}", o_.of_adapters[0],
         o_.adapter.empty() ? "no adapter is trained" : "--adapter has its own",
         o_.adapter.empty() ? "set --lora-rank" : "leave it out");
  if (!o_.trained.empty() && adapters())
    fail("--trained with an adapter: the model beside it is frozen; see --lora-modules-to-save");
  if (o_.json && !o_.dry_run)
    fail("--json is what --dry-run says; see --metrics for a run's numbers");
  if (o_.out.empty() && o_.config.checkpoints.empty() && !o_.dry_run)
    fmt::print(stderr, "note: neither --out nor --checkpoints: nothing will be saved\n");
}

// Where the run will write beside --out.
void TrainCommand::check_logs() {
  const std::string& metrics = o_.config.metrics;
  std::error_code none;
  if (!metrics.empty()) {
    const std::filesystem::path folder = std::filesystem::absolute(metrics).parent_path();
    if (is_folder(metrics) || !is_folder(folder.string()))
      fail("--metrics '{}': {}; expected a file in a folder that exists", metrics,
           is_folder(metrics) ? "a folder"
                              : fmt::format("there is no folder '{}'", folder.string()));
    if (!o_.resume && std::filesystem::file_size(metrics, none) > 0 && !none)
      fail(
          "--metrics '{}': a file is there already; remove it, name another, or go on with "
          "--resume",
          metrics);
  }
  for (const std::string& folder : {o_.config.tensorboard, o_.config.checkpoints})
    if (!folder.empty() && file_exists(folder) && !is_folder(folder))
      fail("'{}' is a file; expected a folder, or nothing there yet", folder);
  if (o_.config.checkpoints.empty() || !is_folder(o_.config.checkpoints)) return;
  const std::vector<int64_t> steps = CheckpointReader(o_.config.checkpoints).steps();
  if (steps.empty()) return;
  if (!o_.resume)
    fail(
        "'{}' holds a checkpoint of step {}; add --resume to go on from it, or name another "
        "folder",
        o_.config.checkpoints, steps.back());
  done_ = steps.back();
  if (o_.dry_run && !o_.json) fmt::print("  would go on after step {}\n", done_);
}

Model TrainCommand::open_head(Head head, BatchShape shape) const {
  Model m = load_model(o_.model, shape, head,
                       o_.no_dropout ? Dropout::off : Dropout::refused_in_training);
  return o_.dtype.empty() ? m : with_dtype(std::move(m), parse_dtype(o_.dtype));
}

Plan TrainCommand::open_plan() const {
  Plan plan = o_.plan.empty() ? one_rank_plan(o_.microbatches) : load_plan(o_.plan);
  for (const Recompute how : {Recompute::none, Recompute::full, Recompute::selective})
    if (o_.recompute == to_string(how)) plan.recompute = how;
  return plan;
}

void TrainCommand::open_model_and_data() {
  const BatchShape shape{o_.slots, o_.slot_tokens};
  base_ = open_head(Head::loss, shape);
  say_notes(base_);
  const int64_t vocabulary = base_.extent("V").size;
  text_ = open_text(o_.data.tokenizer, o_.model, vocabulary);
  data_ = open_data(o_.data, text_, o_.slot_tokens, vocabulary, o_.config.seed, stderr);
  if (data_->paired()) base_ = open_head(Head::preference, shape);
  if (!data_->paired() && !o_.of_pairs.empty())
    fail("{}: the data holds no preference pairs (prompt, chosen, rejected); leave it out",
         o_.of_pairs[0]);
  if (o_.lora.rank > 0) {
    lora_ = o_.lora;
    lora_->base_model = o_.init.empty() ? o_.model : o_.init;
  } else if (!o_.adapter.empty()) {
    lora_ = load_adapter_config(o_.adapter);
    if (lora_->dropout > 0)
      fmt::print(stderr, "note: lora_dropout {} of '{}' is kept and not applied in training\n",
                 lora_->dropout, o_.adapter);
  }
  model_ = lora_ ? with_lora(base_, *lora_) : base_;
  if (data_->paired()) model_ = with_preference(std::move(model_), o_.preference);
  if (!o_.trained.empty()) freeze_others(model_, o_.trained);
}

void TrainCommand::set_steps() {
  const BatchLayout layout = batch_layout(model_, plan_.microbatches);
  o_.config.steps = o_.steps.value_or(100);
  if (!o_.epochs) return;
  int64_t slots = 0;
  for (const SourceReport& s : data_->report().training) slots += s.slots;
  o_.config.steps = (checked_mul(slots, *o_.epochs) + layout.samples() - 1) / layout.samples();
}

void TrainCommand::open() {
  check_paths();
  check_logs();
  profile_.check();
  open_model_and_data();
  plan_ = open_plan();
  set_steps();
  profile_.check_steps();
  lowering_ = lower_options(o_, plan_);
  o_.config.threads = lowering_.threads;
  for (const auto& [name, value] : o_.settings) set_setting(lowering_.optimizer, name, value);
  for (const std::string& pattern : o_.no_decay) {
    ParamGroup group;
    group.match = pattern;
    group.weight_decay = 0;
    lowering_.optimizer.groups.push_back(std::move(group));
  }
  o_.config.optimizer = lowering_.optimizer;
  o_.config.rate.steps = o_.config.steps;
  check_learning_rate(o_.config.rate);
  if (o_.config.noise_every > 0 && o_.slots * plan_.microbatches == 1)
    fail(
        "--noise-every compares a part of a step with the whole, and a step has one slot only; "
        "set --slots or --microbatches to 2 or more");
  compiled_ = compile(model_, plan_, o_.ranks, lowering_);
}

// The folder's parameters, or drawn ones; adapters from their folder, or drawn.
HostTensors TrainCommand::starting_parameters() {
  HostTensors all = initial_parameters(model_, o_.config.seed);
  const bool has_own = is_folder(o_.model) && !o_.from_scratch &&
                       (file_exists(o_.model + "/model.safetensors") ||
                        file_exists(o_.model + "/model.safetensors.index.json"));
  const std::string folder = !o_.init.empty() ? o_.init : has_own ? o_.model : "";
  if (folder.empty())
    fmt::print("  parameters: drawn with seed {}\n", o_.config.seed);
  else
    fmt::print("  parameters: from '{}'\n", folder);
  if (!folder.empty())
    for (auto& [name, t] : load_parameters(base_, folder, &as_read_)) all[name] = std::move(t);
  if (!o_.adapter.empty())
    for (auto& [name, t] : load_adapter(model_, o_.adapter)) all[name] = std::move(t);
  return all;
}

// ---- what it would do -----------------------------------------------------------------------

nlohmann::ordered_json TrainCommand::facts() const {
  const BatchLayout layout = batch_layout(model_, plan_.microbatches);
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankReport& r : compiled_->report.ranks)
    ranks.push_back({{"state_bytes", r.state_bytes},
                     {"peak_bytes", r.peak_live_bytes},
                     {"arena_bytes", r.arena_bytes},
                     {"sent_bytes_a_step", r.sent_bytes}});
  nlohmann::ordered_json all = {
      {"model", model_.name},
      {"parameters", model_.parameter_count()},
      {"trained_parameters", model_.trained_count()},
      {"tokenizer", text_.from},
      {"steps", o_.config.steps},
      {"tokens_a_step", layout.tokens()},
      {"tokens", checked_mul(layout.tokens(), o_.config.steps)},
      {"plan", print_plan(plan_)},
      {"optimizer", o_.config.optimizer.name},
      {"ranks", ranks},
      {"flops_a_step", estimate_->flops},
      {"estimated_seconds_a_step", estimate_->seconds},
      {"estimated_seconds", estimate_->seconds * static_cast<double>(o_.config.steps)},
      {"digest", fmt::format("{:016x}", digest(compiled_->lowered.programs))}};
  all.update(profile_.facts(done_));
  return all;
}

void TrainCommand::describe() {
  if (o_.dry_run) estimate_ = measure_step(compiled_->lowered.programs, kEstimateSeconds);
  if (o_.json) {
    if (o_.dry_run) fmt::print("{}\n", facts().dump(2));
    return;
  }
  fmt::print("{}{}{}", explain_model(model_), explain_mesh(model_, plan_, compiled_->lowered),
             explain_notes(notes(compiled_->lowered.programs, compiled_->report)));
  fmt::print("  tokenizer: {}\n{}", text_.from, explain_data(data_->report()));
  if (!o_.dry_run) return;
  const BatchLayout layout = batch_layout(model_, plan_.microbatches);
  fmt::print("{}{}", explain_states(compiled_->lowered.programs), explain_ranks(compiled_->report));
  fmt::print(
      "{}",
      paragraph(
          fmt::format(
              "{} of {} by {}: {} in all. A step is {:.3g} GFLOP and will take about {:.2g} s "
              "here ({} kernel calls timed, {} by their FLOPs; no communication), the run "
              "about {}.",
              count_of(o_.config.steps, "step"), count_of(layout.tokens(), "token"),
              o_.config.optimizer.name,
              count_of(checked_mul(layout.tokens(), o_.config.steps), "token"),
              static_cast<double>(estimate_->flops) / 1e9, estimate_->seconds, estimate_->timed,
              estimate_->extrapolated,
              duration_text(estimate_->seconds * static_cast<double>(o_.config.steps))),
          "  "));
  fmt::print("{}  nothing was trained: --dry-run\n", profile_.plan(done_));
}

// ---- the run --------------------------------------------------------------------------------

// True: it goes on from a checkpoint.
bool TrainCommand::resume() {
  if (trainer_->store() == nullptr) return false;
  std::vector<std::string> remarks = trainer_->store()->notes();
  const std::optional<Checkpoint> last = trainer_->store()->load_latest(&remarks);
  for (const std::string& remark : remarks) fmt::print("  note: {}\n", remark);
  if (!last) {
    if (o_.resume) fmt::print("  no checkpoint in '{}' yet: a new run\n", o_.config.checkpoints);
    return false;
  }
  trainer_->resume(*last);
  if (last->step > o_.config.steps)
    fail("the checkpoint is of step {}, and --steps is {}: there is nothing to train", last->step,
         o_.config.steps);
  const auto& settings = last->trainer.at("description").value("optimizer", nlohmann::json());
  if (!settings.is_null() && settings != optimizer_facts(lowering_.optimizer))
    fmt::print("  note: the optimizer's settings were {}, and are now {}\n", settings.dump(),
               optimizer_facts(lowering_.optimizer).dump());
  fmt::print("  resumed after step {} of {}\n", last->step, o_.config.steps);
  return true;
}

void TrainCommand::start() {
  const HostTensors parameters = starting_parameters();
  std::unique_ptr<PreferenceReference> reference;
  if (data_->paired()) {
    // Adapters begin as no change, so the starting model is the reference with them as well.
    Model frozen = open_head(Head::token_loss, {o_.slots, o_.slot_tokens});
    if (lora_) frozen = with_lora(std::move(frozen), *lora_);
    reference =
        std::make_unique<PreferenceReference>(frozen, plan_, parameters, o_.preference.beta);
  }
  profile_.measure(lowering_.threads, model_.dtype);
  trainer_ = std::make_unique<Trainer>(model_, plan_, *data_, o_.config, std::move(reference));
  fmt::print("  {}\n", threads_text(lowering_.threads, trainer_->session().cores()));
  trainer_->set_parameters(parameters);
  trainer_->set_description({{"model", o_.model},
                             {"config", base_.config_json},
                             {"text", base_.config_json.empty() ? print_model(base_) : ""},
                             {"tokenizer", text_.from},
                             {"adapter", lora_ ? lora_facts(*lora_) : nullptr},
                             {"optimizer", optimizer_facts(lowering_.optimizer)}});
  resume();
  profile_.begin(*trainer_);
}

void TrainCommand::sample(int64_t step) {
  const BatchShape one{1, o_.slot_tokens};
  if (generator_ == nullptr) {
    Model m = open_head(Head::logits, one);
    if (lora_) m = with_lora(std::move(m), *lora_);
    generator_ = std::make_unique<Generator>(m, trainer_->parameters());
  } else {
    generator_->set_parameters(trainer_->parameters());
  }
  GenerateOptions g{o_.samples.tokens, o_.samples.temperature, o_.config.seed, {}};
  if (text_.tokenizer->eos()) g.stop = {*text_.tokenizer->eos()};
  for (const std::string& prompt : o_.samples.prompts) {
    const std::vector<int32_t> ids = text_.tokenizer->encode(prompt);
    const std::string more = text_.tokenizer->decode(generator_->generate(ids, g), true);
    fmt::print("{}",
               paragraph(fmt::format("step {}: {}|{}", step, prompt, printable(more)), "    "));
    trainer_->log_text("sample: " + prompt, prompt + more);
  }
}

void TrainCommand::step_done(const StepReport& r, Progress& progress) {
  progress.step(r);
  validation_ = r.validation_loss;
  measured_seconds_ += r.seconds;
  ++measured_steps_;
  if (o_.samples.every > 0 && (r.step % o_.samples.every == 0 || r.step == r.steps)) sample(r.step);
  if (!keeps_best() || !r.best) return;
  save();
  best_step_ = r.step;
}

void TrainCommand::save() {
  SaveOptions options;
  options.carry = !o_.init.empty() ? o_.init : is_folder(o_.model) ? o_.model : "";
  options.as_read = as_read_.files.empty() ? nullptr : &as_read_;
  options.storage = save_dtype(o_.save_dtype);
  options.run_folder = writes_into_out();
  if (text_.from != options.carry) options.tokenizer = tokenizer_files(text_.from);
  const HostTensors trained = trainer_->parameters();
  if (lora_ && !o_.merge)
    save_adapter(model_, trained, o_.out, {options.storage, options.run_folder});
  else
    save_model(base_, lora_ ? merge_lora(model_, trained) : trained, o_.out, options);
}

void TrainCommand::finish(Ending ending) {
  if (measured_steps_ > 0) {
    check_counters(trainer_->session());
    fmt::print("  {:.3g} s a step over {}\n",
               measured_seconds_ / static_cast<double>(measured_steps_),
               count_of(measured_steps_, "step"));
  }
  for (const auto& [step, spike] : trainer_->spikes())
    fmt::print("  the loss stood out at step {}: {:.4f}, expected {:.4f}\n", step, spike.loss,
               spike.expected);
  if (ending == Ending::early)
    fmt::print("  ended early at step {}: no better for {}\n", trainer_->done(),
               count_of(o_.config.patience, "validation"));
  const int64_t labels = data_->validation_labels(trainer_->layout(), trainer_->eval_batches());
  if (labels > 0)
    fmt::print("  validation loss {:.4f} nats per {} over {}\n",
               validation_ ? *validation_ : trainer_->validation_loss(),
               data_->paired()                      ? "pair"
               : text_.tokenizer->kind() == "bytes" ? "byte"
                                                    : "token",
               grouped(labels));
  if (o_.out.empty()) return;
  const bool earlier = keeps_best() && !best_step_ && file_exists(o_.out);
  if (!best_step_ && !earlier) save();
  fmt::print("  saved {} in '{}'{}\n", lora_ && !o_.merge ? "the adapter" : "the model", o_.out,
             best_step_ ? fmt::format(", as it was after step {}: validation loss {:.4f}, the best",
                                      *best_step_, *trainer_->early().best())
             : earlier  ? " earlier, where validation was best"
                        : "");
}

int TrainCommand::run() {
  open();
  describe();
  if (o_.dry_run) return 0;
  start();
  StopSignal stop;
  Progress progress(stdout);
  const Ending ending =
      trainer_->run([&](const StepReport& r) { step_done(r, progress); }, stop.flag());
  if (ending != Ending::stopped) {
    finish(ending);
    profile_.finish(*trainer_);
    return 0;
  }
  const bool only_out = o_.config.checkpoints.empty() && !o_.out.empty();
  if (only_out && !best_step_) save();
  fmt::print("\n  stopped after step {} of {}; {}\n", trainer_->done(), o_.config.steps,
             only_out
                 ? fmt::format("saved in '{}'; without --checkpoints nothing can resume it", o_.out)
             : o_.config.checkpoints.empty()
                 ? "nothing was saved: neither --out nor --checkpoints"
                 : fmt::format("saved in '{}', go on with --resume", o_.config.checkpoints));
  profile_.finish(*trainer_);
  return 128 + stop.signal();
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "train",
      "train a model, from scratch or from a folder; RUN.toml in place of MODEL gives flags");
  auto o = std::make_shared<TrainOptions>();
  add_train_options(*command, *o);
  command->callback([o, command] {
    note_given(*command, *o);
    const int code = TrainCommand(*o).run();
    if (code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace plait
