// plait eval MODEL --data PATH: how well a model predicts a text.
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/cli/eval_logits.h"
#include "plait/cli/open_data.h"
#include "plait/model/adapter.h"
#include "plait/model/folder.h"
#include "plait/model/lora.h"
#include "plait/report/explain_data.h"
#include "plait/report/progress.h"
#include "plait/report/table.h"
#include "plait/train/trainer.h"

namespace plait {

namespace {

struct EvalOptions : CommonOptions {
  DataFlags data;
  std::string adapter, logits;
  int64_t batches = 0;
  bool json = false;
};

struct Score {
  double nats = 0;  // a token
  int64_t tokens = 0, bytes = 0;
};

void print_score(const EvalOptions& o, const Score& s, const std::string& tokenizer) {
  const double perplexity = std::exp(s.nats);
  // Bits of the text's bytes, which compares models of different tokenizers.
  const double bits = s.bytes == 0 ? 0
                                   : s.nats * static_cast<double>(s.tokens) /
                                         static_cast<double>(s.bytes) / std::log(2.0);
  if (o.json) {
    nlohmann::ordered_json j = {{"model", o.model},
                                {"tokenizer", tokenizer},
                                {"nats_per_token", s.nats},
                                {"perplexity", perplexity},
                                {"tokens", s.tokens}};
    if (s.bytes > 0) j["bits_per_byte"] = bits;
    fmt::print("{}\n", j.dump(2));
    return;
  }
  Table table({"tokens", "nats per token", "perplexity", "bits per byte"});
  table.row({grouped(s.tokens), fmt::format("{:.6f}", s.nats), fmt::format("{:.4f}", perplexity),
             s.bytes > 0 ? fmt::format("{:.4f}", bits) : "-"});
  fmt::print("{}", table.text());
}

// Bytes of what is labelled: every token's own text.
int64_t bytes_of_labels(const Data& data, const Tokenizer& tokenizer, int64_t samples) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const Sample s = data.validation_sample(i);
    std::vector<int32_t> ids;
    for (size_t k = 0; k < s.labels.size(); ++k)
      if (s.learn[k] != 0) ids.push_back(s.labels[k]);
    bytes += static_cast<int64_t>(tokenizer.decode(ids).size());
  }
  return bytes;
}

void run_eval(EvalOptions o) {
  Model model = open_model(o, Head::loss);
  say_notes(model);
  const Model base = model;
  const int64_t vocabulary = model.extent("V").size;
  const Text text = open_text(o.data.tokenizer, o.model, vocabulary);
  // All of the data is for validation.
  o.data.validation = o.data.train;
  const auto data = open_data(o.data, text, o.slot_tokens, vocabulary, 1, stderr);
  if (data->paired()) fail("preference pairs have no perplexity; give text or conversations");
  HostTensors parameters = load_parameters(base, o.model);
  std::optional<LoraConfig> lora;
  if (!o.adapter.empty()) {
    lora = load_adapter_config(o.adapter);
    model = with_lora(std::move(model), *lora);
    for (auto& [name, t] : load_adapter(model, o.adapter)) parameters[name] = std::move(t);
  }
  const Plan plan = o.plan.empty() ? one_rank_plan(1) : load_plan(o.plan);
  LowerOptions options;
  options.train = false;
  options.threads = share_of_cores(plan.mesh.ranks());
  Session session(compile(model, plan, o.ranks, options).lowered.programs, {});
  session.set_states("param/", parameters);
  const BatchLayout layout = batch_layout(model, plan.microbatches);
  const int64_t all = data->validation_batches(layout);
  const int64_t batches = o.batches == 0 ? all : std::min(all, o.batches);
  Score score;
  score.nats = evaluate(session, *data, layout, batches);
  score.tokens = data->validation_labels(layout, batches);
  const int64_t samples = std::min(data->validation_samples(), batches * layout.samples());
  score.bytes = bytes_of_labels(*data, *text.tokenizer, samples);
  if (!o.logits.empty()) {
    Model head = open_model(o, Head::logits);
    if (lora) head = with_lora(std::move(head), *lora);
    write_logits(o.logits, head, plan, o.ranks, parameters, *data, samples);
  }
  DataReport report = data->report();
  report.validation.clear();  // the same once more
  if (!o.json) fmt::print("  tokenizer: {}\n{}", text.from, explain_data(report));
  print_score(o, score, text.from);
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "perplexity of a model on a text");
  auto o = std::make_shared<EvalOptions>();
  add_model_option(*command, *o);
  add_data_options(*command, o->data);
  for (const char* splits : {"--validation", "--held-out", "--data-weights"})
    command->remove_option(command->get_option(splits));
  command->add_option("--adapter", o->adapter, "folder of an adapter (PEFT)")->check(a_path());
  command->add_option("--plan", o->plan, "plan file; left out: one rank")->check(a_path());
  command->add_option("--batches", o->batches, "of one step's tokens; 0: all")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command
      ->add_option("--logits", o->logits,
                   "write tokens, labels and logits there, as safetensors, to compare with others")
      ->check(a_path());
  command->add_flag("--json", o->json, "for scripts");
  add_batch_options(*command, *o);
  add_ranks_option(*command, *o);
  command->callback([o] { run_eval(*o); });
}

}  // namespace plait
