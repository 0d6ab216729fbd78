// plait demo: one model trained on 8 ranks, and everything that plait claims shown on it. Every
// claim is checked as it is printed; what does not hold ends the demo with exit code 1. Only that
// the model has learned more than a 3-gram may fail, when fewer steps than usual were asked for.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/infer/generate.h"
#include "plait/report/explain.h"
#include "plait/report/progress.h"
#include "plait/report/table.h"
#include "plait/tokens/tokenizer.h"
#include "plait/tokens/tokenizer_files.h"
#include "plait/train/trigram.h"

namespace plait {

namespace {

constexpr int64_t kSteps = 900;  // enough to pass the 3-gram

struct DemoOptions {
  std::string plan = "examples/demo.toml", data = "build/demo/kjv.txt", out = "build/demo/model";
  int64_t slots = 2, slot_tokens = 128, sample_tokens = 320, compared_steps = 5;
  TrainConfig config;
};

std::unique_ptr<Data> open_bytes(const DemoOptions& o, int64_t vocabulary) {
  DataConfig config;
  config.train = {{o.data, "text"}};
  config.slot_tokens = o.slot_tokens;
  config.vocabulary = vocabulary;
  config.seed = o.config.seed;
  config.cache = false;  // bytes are their own tokens
  return Data::open(config, *byte_tokenizer());
}

std::string as_text(const std::vector<int32_t>& bytes) { return byte_tokenizer()->decode(bytes); }

LowerOptions demo_lowering(const DemoOptions& o, const Plan& plan) {
  LowerOptions options;
  options.optimizer = o.config.optimizer;
  options.threads = share_of_cores(plan.mesh.ranks());
  return options;
}

TrainConfig demo_config(const DemoOptions& o, const Plan& plan) {
  TrainConfig config = o.config;
  config.threads = share_of_cores(plan.mesh.ranks());
  return config;
}

class Demo {
 public:
  explicit Demo(DemoOptions options);
  void run();

 private:
  void section(const std::string& title);
  void say(const std::string& words) const { fmt::print("{}", paragraph(words, "  ")); }
  void explain_plan();
  void show_proof();
  void train();
  void compare_trigram();
  void sample();
  void compare_one_rank();
  void check_counts();
  void save_and_load();

  DemoOptions o_;
  Model model_;
  Plan plan_;
  std::unique_ptr<Data> data_;
  Compiled compiled_;
  Trainer trainer_;
  std::vector<double> losses_;
  double validation_ = 0;
  bool passed_trigram_ = false;
  int sections_ = 0;
};

Demo::Demo(DemoOptions options)
    : o_(std::move(options)),
      model_(load_model("llama-demo", {o_.slots, o_.slot_tokens}, Head::loss)),
      plan_(load_plan(o_.plan)),
      data_(open_bytes(o_, model_.extent("V").size)),
      compiled_(compile(model_, plan_, 0, demo_lowering(o_, plan_))),
      trainer_(model_, plan_, *data_, demo_config(o_, plan_)) {}

void Demo::section(const std::string& title) {
  fmt::print("{}[{}] {}\n", sections_ == 0 ? "" : "\n", sections_ + 1, title);
  std::fflush(stdout);
  ++sections_;
}

void Demo::explain_plan() {
  section("The model is written for one device; the plan says where its parts live");
  fmt::print("{}{}", explain_model(model_), explain_mesh(model_, plan_, compiled_.lowered));
  say("The order of work on each pipeline rank (F forward, B input gradient, W weight gradient; "
      "the "
      "number is the micro-batch):");
  fmt::print("{}", explain_schedule(compiled_.lowered.schedule));
  say(fmt::format("Ranks are threads of this process. `plait explain llama-demo {}` says more.",
                  o_.plan));
}

void Demo::show_proof() {
  section("Proved before anything runs");
  RankReport sum;
  for (const RankReport& r : compiled_.report.ranks) {
    sum.actions += r.actions;
    sum.collectives += r.collectives;
    sum.messages += r.messages;
  }
  say(
      fmt::format("Model and plan became one list of actions for every rank, {} in all. For these "
                  "the verifier has shown:",
                  count_of(sum.actions, "action")));
  fmt::print(
      "    - each of the {} meets its receive, and each of the {} on\n"
      "      a rank meets the same one on all ranks of its group\n"
      "    - no ranks can wait for one another for ever\n"
      "    - every operand is written before it is read, no two live tensors share memory\n"
      "    - every parameter ends up with what the model computes on one rank: no reduction\n"
      "      or term is missing, doubled, or over the wrong ranks\n"
      "    - what each rank will send in a step and hold at its peak:\n",
      count_of(sum.messages, "message"), count_of(sum.collectives, "collective call"));
  fmt::print("{}{}", explain_ranks(compiled_.report),
             explain_notes(notes(compiled_.lowered.programs, compiled_.report)));
}

void Demo::train() {
  section(fmt::format("Training on {}: {} steps of {} tokens (bytes of text)",
                      count_of(plan_.mesh.ranks(), "rank"), o_.config.steps,
                      grouped(trainer_.layout().tokens())));
  trainer_.set_parameters(initial_parameters(model_, o_.config.seed));
  Progress progress(stdout);
  trainer_.run([&](const StepReport& r) {
    losses_.push_back(r.loss);
    progress.step(r);
  });
}

void Demo::compare_trigram() {
  section("Has it learned something? Loss on held-out text, beside a 3-gram's");
  validation_ = trainer_.validation_loss();
  const int64_t labels = data_->validation_labels(trainer_.layout(), trainer_.eval_batches());
  const std::string training = as_text(data_->training_tokens());
  const ByteTrigram trigram(training);
  const double counted = trigram.nats_per_byte(as_text(data_->validation_tokens()), 1, 1 + labels);
  Table table({"predictor", "nats per byte", "as good as guessing among"}, "    ");
  auto row = [&](const std::string& name, double nats) {
    table.row({name, fmt::format("{:.4f}", nats), fmt::format("{:.1f} bytes", std::exp(nats))});
  };
  row("knows nothing", std::log(256.0));
  row("byte 3-gram, counted on all training text", counted);
  row("this model, now", validation_);
  fmt::print("{}", table.text());
  say(fmt::format(
      "Both predict the same {} bytes. The 3-gram has counted all {} training bytes; the "
      "model has seen {}.",
      grouped(labels), grouped(static_cast<int64_t>(training.size())),
      grouped(o_.config.steps * trainer_.layout().tokens())));
  passed_trigram_ = validation_ < counted;
  if (!passed_trigram_) say("The model has not passed the 3-gram: it needs more steps.");
}

// The start of the first whole line of the held-out text, whole words.
std::string prompt_from(std::string_view text) {
  const size_t line = text.find('\n');
  const std::string_view rest = line == std::string_view::npos ? text : text.substr(line + 1);
  const size_t end = rest.substr(0, 40).rfind(' ');
  return std::string(rest.substr(0, end == std::string_view::npos ? 20 : end));
}

void Demo::sample() {
  section("What it writes");
  const std::string prompt = prompt_from(as_text(data_->validation_tokens()));
  say(fmt::format("The held-out words \"{}\" continued at temperature 0.7:", prompt));
  Generator generator(load_model("llama-demo", {1, o_.slot_tokens}, Head::logits),
                      trainer_.parameters());
  const auto tokenizer = byte_tokenizer();
  const GenerateOptions options{o_.sample_tokens, 0.7, o_.config.seed, {}};
  std::string text =
      prompt + tokenizer->decode(generator.generate(tokenizer->encode(prompt), options));
  for (char& c : text)
    if (c != '\n' && (c < 32 || c > 126)) c = '?';
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    fmt::print("{}", paragraph(text.substr(begin, end - begin), "    "));
    begin = end + 1;
  }
}

void Demo::compare_one_rank() {
  section("The same training on one rank");
  const Plan one = one_rank_plan(plan_.microbatches);
  Trainer trainer(model_, one, *data_, demo_config(o_, one));
  trainer.set_parameters(initial_parameters(model_, o_.config.seed));
  const std::string many = count_of(plan_.mesh.ranks(), "rank");
  Table table({"step", "loss, " + many, "loss, 1 rank", "relative difference"}, "    ");
  double largest = 0;
  const int64_t steps = std::min(o_.compared_steps, static_cast<int64_t>(losses_.size()));
  for (int64_t i = 0; i < steps; ++i) {
    const double a = losses_[static_cast<size_t>(i)], b = trainer.step().loss;
    const double difference = std::abs(a - b) / std::abs(b);
    largest = std::max(largest, difference);
    table.row({std::to_string(i + 1), fmt::format("{:.7f}", a), fmt::format("{:.7f}", b),
               fmt::format("{:.1e}", difference)});
  }
  fmt::print("{}", table.text());
  constexpr double kLimit = 1e-5;  // f32 sums in another order, over a few updates
  say(fmt::format(
      "Largest relative difference {:.1e}: f32 rounding, the sums run in another order.", largest));
  if (!(largest <= kLimit))
    fail("losses differ by {:.1e} from those on one rank; at most {:.0e} is rounding", largest,
         kLimit);
}

void Demo::check_counts() {
  section("Predicted against counted");
  const Session& session = trainer_.session();
  std::vector<std::vector<std::string>> rows;
  for (size_t r = 0; r < session.counters().size(); ++r)
    rows.push_back({grouped(session.report().ranks[r].sent_bytes),
                    grouped(session.counters()[r].sent_bytes),
                    grouped(session.report().ranks[r].peak_live_bytes),
                    grouped(session.counters()[r].peak_live_bytes)});
  fmt::print("{}", rank_table({"rank", "sent, predicted", "sent, counted", "peak, predicted",
                               "peak, counted"},
                              rows));
  check_counters(session);
  session.check_replicas("param/");
  say("Bytes sent in a step and bytes live at the peak are equal to the byte, and where several "
      "ranks hold the same parameter, they hold the same bits.");
}

void Demo::save_and_load() {
  section("Saved as a Hugging Face folder, and loaded again");
  SaveOptions saving;
  saving.tokenizer = tokenizer_files("bytes");
  save_model(model_, trainer_.parameters(), o_.out, saving);
  const Model loaded = load_model(o_.out, {o_.slots, o_.slot_tokens}, Head::loss);
  LowerOptions options;
  options.train = false;
  options.threads = share_of_cores(plan_.mesh.ranks());
  Session session(lower(loaded, plan_, options).programs, {});
  session.set_states("param/", load_parameters(loaded, o_.out));
  const double again = evaluate(session, *data_, trainer_.layout(), trainer_.eval_batches());
  fmt::print(
      "    {}: config.json, model.safetensors, tokenizer.json\n"
      "    validation loss {:.17g} before, {:.17g} after loading\n",
      o_.out, validation_, again);
  if (again != validation_) fail("the loaded model has another validation loss");
  say(
      fmt::format("Equal to the last bit. Go on with: plait generate {} --prompt \"In the "
                  "beginning\"",
                  o_.out));
}

void Demo::run() {
  const auto begin = std::chrono::steady_clock::now();
  check_can_save(o_.out);
  fmt::print("{}\n",
             paragraph(fmt::format(
                 "plait demo: a Llama of {:.1f} million parameters learns to write from the bytes "
                 "of {}, on {} of this machine. It takes a few minutes.",
                 1e-6 * static_cast<double>(model_.parameter_count()), o_.data,
                 count_of(plan_.mesh.ranks(), "rank"))));
  explain_plan();
  show_proof();
  train();
  compare_trigram();
  sample();
  compare_one_rank();
  check_counts();
  save_and_load();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const std::string done = fmt::format("Done in {}. ", duration_text(seconds.count()));
  if (passed_trigram_) {
    fmt::print("\n{}Everything above was checked as it was printed.\n", done);
    return;
  }
  const bool few = o_.config.steps < kSteps;
  fmt::print("\n{}",
             paragraph(fmt::format(
                 "{}One claim does not hold after {}{}: the model has not passed the 3-gram. "
                 "Everything else was checked as it was printed.",
                 done, few ? "only " : "", count_of(o_.config.steps, "step"))));
  if (!few) throw CLI::RuntimeError(1);
}

}  // namespace

void add_demo(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("demo", "train a small model on 8 ranks, and check it all");
  auto o = std::make_shared<DemoOptions>();
  o->config.steps = kSteps;
  o->config.rate.peak = 2e-3;
  o->config.rate.warmup_steps = 50;
  o->config.eval_batches = 32;
  command->add_option("--steps", o->config.steps, "optimizer steps")
      ->check(whole_number(1, kMaxCount))
      ->capture_default_str();
  command->add_option("--plan", o->plan, "plan file")->check(a_path())->capture_default_str();
  command->add_option("--data", o->data, "text file")->check(a_path())->capture_default_str();
  command->add_option("--out", o->out, "folder for the trained model")
      ->check(a_path())
      ->capture_default_str();
  command->add_option("--learning-rate", o->config.rate.peak, "the largest one")
      ->capture_default_str();
  command->callback([o] { Demo(*o).run(); });
}

}  // namespace plait
