// plait_step: whole training steps of one model on one rank, in a process of its own, so that they
// can be set beside another framework's. What it measured is printed as JSON, one object a line.
//
//   plait_step smollm-135m --slots 4 --slot-tokens 512 --threads 2 --steps 5
//   plait_step FOLDER --load --tokens tokens.bin --serve       # driven by steps.py
//
// With --serve it says {"ready": ...} and then obeys lines on its standard input: "steps N" runs N
// steps and answers with one object, "end" (or the end of the input) prints peak memory and ends.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "plait/base/rng.h"
#include "plait/exec/session.h"
#include "plait/model/adapter.h"
#include "plait/model/families.h"
#include "plait/model/folder.h"
#include "plait/model/lora.h"
#include "plait/program/lower.h"
#include "timed_device.h"

namespace plait::peers {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model, tokens, adapter, dtype = "f32", optimizer = "adamw", recompute = "none";
  int64_t slots = 1, slot_tokens = 1024, steps = 5, warmup = 1, lora_rank = 0;
  std::vector<std::string> lora_targets;
  int threads = 1;
  double learning_rate = 1e-4;
  bool load = false, serve = false, pin = false, strict = false;
};

void add_options(CLI::App& app, Options& o) {
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 20);
  app.add_option("MODEL", o.model, "a name (plait models) or a folder with config.json")
      ->required();
  app.add_flag("--load", o.load, "parameters from the folder MODEL; else they are drawn");
  app.add_option("--tokens", o.tokens, "file of i32 token ids, used in turn; else they are drawn");
  app.add_option("--slots", o.slots, "sequences in a step")->check(positive);
  app.add_option("--slot-tokens", o.slot_tokens, "tokens of a sequence")->check(positive);
  app.add_option("--threads", o.threads)->check(CLI::Range(1, 1024));
  app.add_flag("--pin", o.pin, "bind threads to cores");
  app.add_option("--dtype", o.dtype, "f32, f64, bf16: what is computed in");
  app.add_option("--optimizer", o.optimizer)->capture_default_str();
  app.add_option("--learning-rate", o.learning_rate)->capture_default_str();
  app.add_option("--lora-rank", o.lora_rank, "train adapters of this rank; 0: the whole model")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 16));
  app.add_option("--lora-targets", o.lora_targets, "modules that get adapters")->delimiter(',');
  app.add_option("--adapter", o.adapter, "a folder of peft's: adapters to train");
  app.add_option("--recompute", o.recompute, "none, selective or full")->capture_default_str();
  app.add_option("--warmup", o.warmup, "steps before those that are measured")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  app.add_option("--steps", o.steps)->check(positive);
  app.add_flag("--strict", o.strict, "fail when a measured step allocates, naming the ops");
  app.add_flag("--serve", o.serve, "obey lines of the standard input");
}

// ---- memory of the process ----------------------------------------------------------------

// Bytes of a line such as "VmHWM:   1234 kB" of /proc/self/status; 0 when there is none.
int64_t status_bytes(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::stoll(line.substr(key.size() + 1)) * 1024;
  return 0;
}

// Of all threads since the process began.
double cpu_seconds() {
  rusage r{};
  getrusage(RUSAGE_SELF, &r);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(r.ru_utime) + seconds(r.ru_stime);
}

// From now on VmHWM is the peak since now.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// ---- the model and its batch --------------------------------------------------------------

Model open_model(const Options& o) {
  Model model = load_model(o.model, {o.slots, o.slot_tokens}, Head::loss, Dropout::off);
  model = with_dtype(std::move(model), parse_dtype(o.dtype));
  if (!o.adapter.empty()) return with_lora(std::move(model), load_adapter_config(o.adapter));
  if (o.lora_rank == 0) return model;
  LoraConfig lora;
  lora.rank = o.lora_rank;
  lora.alpha = static_cast<double>(o.lora_rank);
  lora.targets = o.lora_targets;
  return with_lora(std::move(model), lora);
}

HostTensors starting_parameters(const Options& o, const Model& model) {
  HostTensors parameters = initial_parameters(model, 1);
  if (o.load) {
    Model base = load_model(o.model, {o.slots, o.slot_tokens}, Head::loss, Dropout::off);
    base = with_dtype(std::move(base), parse_dtype(o.dtype));
    for (auto& [name, t] : load_parameters(base, o.model)) parameters[name] = std::move(t);
  }
  if (!o.adapter.empty())
    for (auto& [name, t] : load_adapter(model, o.adapter)) parameters[name] = std::move(t);
  return parameters;
}

std::vector<int32_t> read_tokens(const Options& o, const Model& model) {
  const int64_t t = o.slots * o.slot_tokens, vocabulary = model.extent("V").size;
  std::vector<int32_t> ids(static_cast<size_t>(t));
  if (o.tokens.empty()) {
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] =
          static_cast<int32_t>(random_bits(1, Stream::test, i) % static_cast<uint64_t>(vocabulary));
    return ids;
  }
  std::ifstream file(o.tokens, std::ios::binary | std::ios::ate);
  const int64_t bytes = file ? static_cast<int64_t>(file.tellg()) : 0;
  if (bytes == 0 || bytes % (4 * t) != 0)
    fail("--tokens '{}': {} bytes; needs whole batches of {} ids of 4 bytes", o.tokens, bytes, t);
  ids.resize(static_cast<size_t>(bytes / 4));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(ids.data()), bytes);
  for (const int32_t id : ids)
    if (id < 0 || id >= vocabulary)
      fail("--tokens '{}': id {} in a vocabulary of {}", o.tokens, id, vocabulary);
  return ids;
}

// Every slot is one sequence, which predicts its next token; its last token predicts nothing.
HostTensors microbatch(const int32_t* ids, const Options& o) {
  const int64_t t = o.slots * o.slot_tokens;
  HostTensors in;
  for (const char* name : {"tokens", "positions", "sequences", "labels"})
    in[name] = HostTensor(Dtype::i32, {t});
  in["weights"] = HostTensor(Dtype::f64, {t});
  const auto labelled = static_cast<double>(o.slots * (o.slot_tokens - 1));
  for (int64_t i = 0; i < t; ++i) {
    const bool last = (i + 1) % o.slot_tokens == 0;
    in["tokens"].as<int32_t>()[i] = ids[i];
    in["labels"].as<int32_t>()[i] = last ? 0 : ids[i + 1];
    in["positions"].as<int32_t>()[i] = static_cast<int32_t>(i % o.slot_tokens);
    in["sequences"].as<int32_t>()[i] = static_cast<int32_t>(i / o.slot_tokens);
    in["weights"].as<double>()[i] = last ? 0 : 1 / labelled;
  }
  return in;
}

// ---- steps --------------------------------------------------------------------------------

struct Measured {
  std::vector<double> seconds, cpu_seconds, kernel_seconds, losses;
  Allocations made, made_by_kernels;
  std::vector<KernelTime> kernels;
};

class Steps {
 public:
  explicit Steps(const Options& o);
  Measured run(int64_t count);
  Json facts() const;

 private:
  const Program& program() const { return session_->programs().ranks[0]; }
  Dtype dtype_of_input(const std::string& name) const;
  void add_batches(const std::vector<int32_t>& ids);

  const Options& o_;
  Model model_;
  std::unique_ptr<Session> session_;
  std::vector<Batch> batches_;
  int64_t done_ = 0;
};

Steps::Steps(const Options& o) : o_(o), model_(open_model(o)) {
  LowerOptions lowering;
  lowering.threads = o.threads;
  lowering.optimizer.name = o.optimizer;
  const Plan plan = parse_plan(fmt::format("mesh = []\nrecompute = '{}'\n", o.recompute), "plan");
  SessionOptions options;
  options.pin = o.pin;
  options.device = &timed_device();
  session_ = std::make_unique<Session>(lower(model_, plan, lowering).programs, options);
  HostTensors parameters = starting_parameters(o, model_);
  for (auto& [name, tensor] : parameters) {
    const BufferId state = program().find_state("param/" + name);
    if (state == kNone) fail("the programs have no state for parameter '{}'", name);
    tensor = convert(std::move(tensor), program().buffer(state).type.dtype);
  }
  session_->set_states("param/", parameters);
  add_batches(read_tokens(o, model_));
}

// What the programs want it in, whatever the model computes in.
Dtype Steps::dtype_of_input(const std::string& name) const {
  for (const Action& a : program().actions)
    if (a.kind == ActionKind::input && a.name == name) return program().buffer(a.out[0]).type.dtype;
  return model_.dtype;
}

void Steps::add_batches(const std::vector<int32_t>& ids) {
  const auto t = static_cast<size_t>(o_.slots * o_.slot_tokens);
  HostTensor hyper(Dtype::f64, {2});
  for (size_t at = 0; at + t <= ids.size(); at += t) {
    Batch batch;
    batch.microbatches.push_back(microbatch(&ids[at], o_));
    HostTensor& weights = batch.microbatches[0]["weights"];
    weights = convert(std::move(weights), dtype_of_input("weights"));
    batch.step["hyper"] = convert(hyper, dtype_of_input("hyper"));
    batches_.push_back(std::move(batch));
  }
}

Measured Steps::run(int64_t count) {
  using Clock = std::chrono::steady_clock;
  Measured m;
  reset_kernel_times();
  double kernels_before = 0;
  for (int64_t i = 0; i < count; ++i) {
    Batch& batch = batches_[static_cast<size_t>(done_) % batches_.size()];
    HostTensor hyper(Dtype::f64, {2});
    hyper.as<double>()[0] = o_.learning_rate;
    hyper.as<double>()[1] = static_cast<double>(++done_);
    batch.step["hyper"] = convert(std::move(hyper), dtype_of_input("hyper"));
    const Allocations made_before = allocations();
    const double cpu_before = cpu_seconds();
    const auto begin = Clock::now();
    session_->step(batch);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const double cpu = cpu_seconds() - cpu_before;
    m.made += allocations() - made_before;
    m.seconds.push_back(seconds);
    m.cpu_seconds.push_back(cpu);
    m.losses.push_back(session_->scalar("loss"));
    double kernels = 0;
    for (const KernelTime& k : kernel_times()) kernels += k.seconds;
    m.kernel_seconds.push_back(kernels - kernels_before);
    kernels_before = kernels;
  }
  m.kernels = kernel_times();
  for (const KernelTime& k : m.kernels) m.made_by_kernels += k.made;
  return m;
}

Json Steps::facts() const {
  const RankReport& r = session_->report().ranks[0];
  return {{"framework", "plait"},
          {"threads", o_.threads},
          {"dtype", o_.dtype},
          {"parameters", model_.parameter_count()},
          {"trained", model_.trained_count()},
          {"state_bytes", r.state_bytes},
          {"arena_bytes", r.arena_bytes},
          {"rss_bytes", status_bytes("VmRSS:")}};
}

Json to_json(const Allocations& a, int64_t steps) {
  const auto each = [steps](int64_t n) {
    return static_cast<double>(n) / static_cast<double>(steps);
  };
  return {{"allocations", each(a.calls)},
          {"bytes", each(a.bytes)},
          {"frees", each(a.frees)},
          {"maps", each(a.maps)}};
}

// All counts and the times of kernels are per step.
Json to_json(const Measured& m) {
  const auto steps = static_cast<int64_t>(m.seconds.size());
  Json kernels = Json::array();
  for (const KernelTime& k : m.kernels)
    kernels.push_back(
        {{"op", k.op},
         {"calls", static_cast<double>(k.calls) / static_cast<double>(steps)},
         {"seconds", k.seconds / static_cast<double>(steps)},
         {"allocations", static_cast<double>(k.made.all()) / static_cast<double>(steps)}});
  Json j = {{"seconds", m.seconds},
            {"cpu_seconds", m.cpu_seconds},
            {"kernel_seconds", m.kernel_seconds},
            {"losses", m.losses},
            {"kernels", kernels}};
  if (!counts_allocations()) return j;
  j["allocator"] = to_json(m.made, steps);
  j["allocator_outside_kernels"] = to_json(m.made - m.made_by_kernels, steps);
  return j;
}

// Throws Error when a step allocated.
void check_no_allocations(const Measured& m) {
  if (!counts_allocations()) fail("--strict: allocations are counted with glibc only");
  if (m.made.all() == 0) return;
  std::string ops;
  for (const KernelTime& k : m.kernels)
    if (k.made.all() != 0) ops += fmt::format(", {} {}", k.op, k.made.all());
  const int64_t outside = m.made.all() - m.made_by_kernels.all();
  if (outside != 0) ops += fmt::format(", outside kernels {}", outside);
  fail("{} steps after the warm-up made {} calls of the allocator, expected none: {}",
       m.seconds.size(), m.made.all(), ops.substr(2));
}

void say(const Json& j) { std::cout << j.dump() << std::endl; }

// "steps N" or "end". Throws Error on anything else.
void serve(Steps& steps) {
  say({{"ready", steps.facts()}});
  for (std::string line; std::getline(std::cin, line) && line != "end";) {
    std::istringstream words(line);
    std::string command;
    int64_t count = 0;
    words >> command >> count;
    if (line == "reset_peak") {
      reset_peak();
      say({{"rss_bytes", status_bytes("VmRSS:")}});
    } else if (command == "steps" && count > 0) {
      say(to_json(steps.run(count)));
    } else {
      fail("standard input: '{}'; expected 'steps N', 'reset_peak' or 'end'", line);
    }
  }
}

int run(const Options& o) {
  if (counts_allocations() && allocations().calls == 0)
    fail("allocations are not counted: another library stands before plait_step's; no preload");
  Steps steps(o);
  const int64_t loading = status_bytes("VmHWM:");
  if (o.serve) {
    serve(steps);
  } else {
    if (o.warmup > 0) steps.run(o.warmup);
    reset_peak();
    const Measured measured = steps.run(o.steps);
    Json j = steps.facts();
    j.update(to_json(measured));
    j["peak_bytes_loading"] = loading;
    j["peak_bytes"] = status_bytes("VmHWM:");
    say(j);
    if (o.strict) check_no_allocations(measured);
    return 0;
  }
  say({{"peak_bytes_loading", loading}, {"peak_bytes", status_bytes("VmHWM:")}});
  return 0;
}

}  // namespace
}  // namespace plait::peers

int main(int argc, char** argv) {
  CLI::App app{"training steps of one model, measured"};
  plait::peers::Options options;
  plait::peers::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    return plait::peers::run(options);
  } catch (const std::exception& e) {
    std::cerr << "plait_step: " << e.what() << "\n";
    return 1;
  }
}
