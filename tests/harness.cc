#include "harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <sstream>

#include "plait/model/families.h"
#include "plait/model/lora.h"
#include "plait/program/verify.h"
#include "random_config.h"

namespace plait {

namespace {

constexpr double kTolerance = 1e-10;

std::vector<Axis> random_axes(Draw& d, int64_t layers) {
  const int world = static_cast<int>(d.pick<int64_t>({1, 2, 2, 3, 4, 4, 6, 8, 8, 8}));
  std::vector<std::vector<Axis>> all;
  for (int pp = 1; pp <= world; ++pp)
    for (int dp = 1; pp * dp <= world; ++dp)
      if (world % (pp * dp) == 0 && pp <= layers + 2)
        all.push_back({{"pp", pp}, {"dp", dp}, {"tp", world / (pp * dp)}});
  std::vector<Axis> axes = d.pick(all);
  for (size_t i = axes.size(); i > 1; --i)
    std::swap(axes[i - 1], axes[static_cast<size_t>(d.below(static_cast<int64_t>(i)))]);
  return axes;
}

// Sizes for one axis: units dealt at random, empty shards among them.
std::vector<int64_t> random_sizes(Draw& d, int64_t elements, int ways) {
  std::vector<int64_t> sizes(static_cast<size_t>(ways), 0);
  int64_t left = elements;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    sizes[i] = d.chance(15) ? 0 : d.between(0, left);
    left -= sizes[i];
  }
  sizes.back() = left;
  return sizes;
}

void random_splits(Draw& d, const ConfigSizes& s, Plan& plan) {
  const int tp = plan.mesh.size("tp");
  plan.split["T"].axes = {"dp"};
  if (d.chance(15))
    plan.split["T"].axes =
        d.chance(50) ? std::vector<std::string>{"dp", "tp"} : std::vector<std::string>{"tp", "dp"};
  // Heads that do not divide are dealt out unevenly, or key/value heads are gathered.
  if (d.chance(85)) plan.split["H"].axes = {"tp"};
  if (plan.split.contains("H") ? d.chance(80) : d.chance(20)) plan.split["G"].axes = {"tp"};
  if (plan.split.contains("H") && tp > 1 && d.chance(15))
    for (const int64_t n : random_sizes(d, s.heads, tp))
      plan.split["H"].sizes.push_back(n * s.head_size);
  if (d.chance(80)) plan.split["F"].axes = {"tp"};
  if (d.chance(70)) plan.split["V"].axes = {"tp"};
  if (d.chance(15)) plan.split["D"].axes = {"tp"};
  if (d.chance(30)) plan.split["P"].axes = {"tp"};
  if (plan.split.contains("V") && tp > 1 && d.chance(30))
    plan.split["V"].sizes = random_sizes(d, 67, tp);
}

void random_places(Draw& d, const Model& model, Plan& plan) {
  if (!d.chance(30)) return;
  for (int64_t n = d.between(1, 3); n > 0; --n) {
    const Param& p = d.pick(model.params);
    std::vector<DimSplit> dims(p.type.dims.size());
    for (const char* axis : {"dp", "tp"})
      if (d.chance(60))
        dims[static_cast<size_t>(d.below(static_cast<int64_t>(dims.size())))].axes.emplace_back(
            axis);
    const bool placed = std::any_of(plan.place.begin(), plan.place.end(),
                                    [&](const auto& entry) { return entry.first == p.name; });
    if (!placed) plan.place.emplace_back(p.name, dims);
  }
}

}  // namespace

Model case_model(const Case& c) {
  Model model = build_model(c.config, c.batch, Head::loss);
  return c.lora ? with_lora(std::move(model), *c.lora) : model;
}

Case random_case(uint64_t seed) {
  Draw d(seed);
  Case c;
  c.seed = seed;
  ConfigSizes s;
  c.batch = {d.between(1, 5), d.pick<int64_t>({12, 17, 24})};
  c.config = random_config(d, c.batch.slot_tokens, s);
  c.plan.mesh = Mesh(random_axes(d, s.layers), "pp");
  c.plan.microbatches = d.between(1, 4);
  c.plan.schedule = d.chance(50) ? "1f1b" : "gpipe";
  c.plan.recompute =
      d.pick<Recompute>({Recompute::none, Recompute::none, Recompute::full, Recompute::selective});
  random_splits(d, s, c.plan);
  if (d.chance(25)) c.lora = random_lora(d, c.config);
  random_places(d, case_model(c), c.plan);
  if (d.chance(25)) {
    // Any division of the blocks that leaves none of the pipeline ranks empty.
    int64_t left = s.layers + 2;
    const int pp = c.plan.mesh.size("pp");
    for (int stage = 0; stage + 1 < pp; ++stage) {
      c.plan.blocks.push_back(d.between(1, left - (pp - stage - 1)));
      left -= c.plan.blocks.back();
    }
    c.plan.blocks.push_back(left);
  }
  return c;
}

std::string print_case(const Case& c) {
  return fmt::format(
      "# plait_harness --case FILE runs this\nseed = {}\nslots = {}\nslot_tokens = {}\n"
      "{}config = '''{}'''\n--- plan\n{}",
      c.seed, c.batch.slots, c.batch.slot_tokens,
      c.lora ? "lora = " + print_lora(*c.lora) + "\n" : "", c.config, print_plan(c.plan));
}

Case parse_case(const std::string& text, const std::string& source) {
  Case c;
  const size_t plan = text.find("--- plan\n");
  const size_t config = text.find("config = '''"), config_end = text.find("'''\n", config + 12);
  if (plan == std::string::npos || config == std::string::npos || config_end == std::string::npos)
    fail("{}: not a harness case", source);
  auto number = [&](const std::string& key) {
    const size_t at = text.find("\n" + key + " = ");
    if (at == std::string::npos) fail("{}: no '{}'", source, key);
    return std::stoll(text.substr(at + key.size() + 4));
  };
  c.seed = static_cast<uint64_t>(number("seed"));
  c.batch = {number("slots"), number("slot_tokens")};
  c.config = text.substr(config + 12, config_end - config - 12);
  if (const size_t at = text.find("\nlora = "); at != std::string::npos)
    c.lora = parse_lora(text.substr(at + 8, text.find('\n', at + 1) - at - 8));
  c.plan = parse_plan(text.substr(plan + 9), source);
  return c;
}

HostTensors random_parameters(const Model& model, uint64_t seed) {
  HostTensors all;
  Draw d(seed, 1);
  for (const Param& p : model.params) {
    std::vector<int64_t> dims;
    for (const Extent& e : p.type.dims) dims.push_back(e.size);
    HostTensor t(Dtype::f64, dims);
    const double center = p.init.kind == Init::Kind::ones ? 1 : 0;
    for (int64_t i = 0; i < t.elements(); ++i) t.as<double>()[i] = center + 0.2 * d.gauss();
    all[p.name] = convert(t, param_dtype(model));
  }
  return all;
}

Batch random_batch(const Model& model, int64_t microbatches, uint64_t seed) {
  Draw d(seed, 2);
  const Extent& tokens = model.extent("T");
  const int64_t vocabulary = model.extent("V").size;
  Batch batch;
  int64_t counted = 0;
  std::vector<std::vector<int>> masks;
  for (int64_t m = 0; m < microbatches; ++m) {
    HostTensors t;
    for (const char* name : {"tokens", "positions", "sequences", "labels"})
      t[name] = HostTensor(Dtype::i32, {tokens.size});
    std::vector<int> mask(static_cast<size_t>(tokens.size), 0);
    int32_t sequence = 0;
    for (int64_t slot = 0; slot < tokens.size; slot += tokens.unit) {
      const bool masked = d.chance(15);
      for (int64_t at = 0; at < tokens.unit; ++sequence) {
        const bool padding = d.chance(15);
        const int64_t length = padding ? 1 : d.between(1, tokens.unit - at);
        for (int64_t i = 0; i < length; ++i, ++at) {
          const auto k = static_cast<size_t>(slot + at);
          t["tokens"].as<int32_t>()[k] = static_cast<int32_t>(d.below(vocabulary));
          t["labels"].as<int32_t>()[k] = static_cast<int32_t>(d.below(vocabulary));
          t["positions"].as<int32_t>()[k] = static_cast<int32_t>(i);
          t["sequences"].as<int32_t>()[k] = sequence;
          mask[k] = !masked && !padding && d.chance(80) ? 1 : 0;
          counted += mask[k];
        }
      }
    }
    masks.push_back(mask);
    batch.microbatches.push_back(std::move(t));
  }
  for (size_t m = 0; m < masks.size(); ++m) {
    HostTensor weights(Dtype::f64, {tokens.size});
    for (size_t i = 0; i < masks[m].size(); ++i)
      weights.as<double>()[i] = masks[m][i] / static_cast<double>(std::max<int64_t>(1, counted));
    batch.microbatches[m]["weights"] = convert(weights, wide(model.dtype));
  }
  HostTensor hyper(Dtype::f64, {2});
  hyper.as<double>()[0] = kHarnessRate;
  hyper.as<double>()[1] = 1;
  batch.step["hyper"] = convert(hyper, wide(model.dtype));
  return batch;
}

LowerOptions harness_options() {
  LowerOptions o;
  o.optimizer.name = "sgd";
  o.optimizer.weight_decay = 0;
  o.optimizer.max_norm = 0;
  o.keep_gradients = true;
  return o;
}

Truth make_truth(const Case& c) {
  return make_truth(with_dtype(case_model(c), Dtype::f64), c.plan.microbatches, c.seed);
}

Truth make_truth(Model model, int64_t microbatches, uint64_t seed) {
  Truth t;
  t.model = std::move(model);
  t.parameters = random_parameters(t.model, seed);
  t.batch = random_batch(t.model, microbatches, seed);
  t.reference = reference_step(t.model, t.parameters, t.batch);
  t.after = t.parameters;
  reference_sgd(t.after, t.reference.gradients, kHarnessRate);
  return t;
}

std::string counted_as_predicted(const Session& session) {
  std::string text;
  for (size_t r = 0; r < session.counters().size(); ++r) {
    const RankCounters& counted = session.counters()[r];
    const RankReport& predicted = session.report().ranks[r];
    if (counted.sent_bytes != predicted.sent_bytes)
      text += fmt::format("rank {} sent {} bytes, predicted {}\n", r, counted.sent_bytes,
                          predicted.sent_bytes);
    if (counted.peak_live_bytes != predicted.peak_live_bytes)
      text += fmt::format("rank {} peaked at {} bytes, predicted {}\n", r, counted.peak_live_bytes,
                          predicted.peak_live_bytes);
  }
  return text;
}

namespace {

// What differs between a session after a step and the truth.
std::string differences(const Session& session, const Truth& truth, double* worst) {
  std::string text;
  auto hold = [&](const std::string& what, double error, double scale) {
    const double share = error / (kTolerance * scale);
    if (worst != nullptr) *worst = std::max(*worst, share);
    if (!(share <= 1)) text += fmt::format("{}: error {:.3g} against {:.3g}\n", what, error, scale);
  };
  const double loss = truth.reference.loss;
  for (int r = 0; r < session.programs().mesh.ranks(); ++r) {
    hold(fmt::format("loss on rank {}", r), std::abs(session.scalar("loss", r) - loss),
         std::abs(loss) + 1e-300);
    hold(fmt::format("gradient norm on rank {}", r),
         std::abs(session.scalar("grad_sum_squares", r) - truth.reference.grad_sum_squares),
         truth.reference.grad_sum_squares + 1e-300);
  }
  const HostTensors gradients = session.gather("grad/"), after = session.gather("param/");
  for (const auto& [name, expected] : truth.reference.gradients) {
    const double scale = std::max(norm(expected), truth.reference.absolute_norms.at(name));
    hold("gradient of " + name, distance(gradients.at(name), expected), scale + 1e-300);
    hold("parameter " + name, distance(after.at(name), truth.after.at(name)),
         norm(truth.after.at(name)));
  }
  if (gradients.size() != truth.reference.gradients.size())
    text += fmt::format("{} gradients, expected {}\n", gradients.size(),
                        truth.reference.gradients.size());
  for (const auto& [name, expected] : truth.after)  // frozen ones stay, bit for bit
    if (!truth.reference.gradients.contains(name) && !(after.at(name) == expected))
      text += fmt::format("parameter {} is frozen, and has changed\n", name);
  return text;
}

struct Run {
  std::string text;
  HostTensors parameters;
  double loss = 0;
};

// Two SGD steps, each held against the reference.
Run two_steps(const Programs& programs, Truth truth, double* worst) {
  SessionOptions options;
  options.poison = true;
  options.limit_seconds = 10;
  Session session(programs, options);
  session.set_states("param/", truth.parameters);
  Run run;
  for (int step = 0; step < 2; ++step) {
    session.step(truth.batch);
    run.text += differences(session, truth, worst) + counted_as_predicted(session);
    session.check_replicas("");
    // The next step is judged from where the layout is, so that errors do not pile up.
    truth.parameters = session.gather("param/");
    if (step == 1) break;
    truth.reference = reference_step(truth.model, truth.parameters, truth.batch);
    truth.after = truth.parameters;
    reference_sgd(truth.after, truth.reference.gradients, kHarnessRate);
  }
  run.parameters = std::move(truth.parameters);
  run.loss = session.scalar("loss");
  return run;
}

CaseResult run_f64(const Case& c) {
  CaseResult result;
  result.ranks = c.plan.mesh.ranks();
  const Truth truth = make_truth(c);
  const Programs programs = lower(truth.model, c.plan, harness_options()).programs;
  const std::string printed = print_programs(programs);
  if (print_programs(parse_programs(printed, "printed")) != printed)
    result.what += "the program does not print back to itself\n";
  if (!(parse_plan(print_plan(c.plan), "printed") == c.plan))
    result.what += "the plan does not print back to itself\n";
  const Run first = two_steps(programs, truth, &result.worst);
  result.what += first.text;
  Case other = c;
  other.plan.schedule = c.plan.schedule == "gpipe" ? "1f1b" : "gpipe";
  const Programs other_programs = lower(truth.model, other.plan, harness_options()).programs;
  for (const Programs* again : {&programs, &other_programs}) {
    const Run run = two_steps(*again, truth, nullptr);
    if (!(run.parameters == first.parameters) || std::memcmp(&run.loss, &first.loss, 8) != 0)
      result.what += again == &programs ? "a repetition gives other bits\n"
                                        : "the other schedule gives other bits\n";
  }
  if (!result.what.empty()) result.outcome = Outcome::failed;
  return result;
}

HostTensors rounded_gradients(const Model& model, const Plan& plan, const Truth& truth,
                              const HostTensors& parameters) {
  SessionOptions options;
  options.poison = true;
  Session session(lower(model, plan, harness_options()).programs, options);
  session.set_states("param/", parameters);
  Batch batch = truth.batch;
  for (HostTensors& m : batch.microbatches) m["weights"] = convert(m["weights"], Dtype::f32);
  batch.step["hyper"] = convert(batch.step["hyper"], Dtype::f32);
  session.step(batch);
  session.check_replicas("");
  HostTensors gradients;
  for (auto& [name, t] : session.gather("grad/")) gradients[name] = convert(t, Dtype::f64);
  return gradients;
}

// Each element a neighbour of what it was: an error of one rounding.
HostTensors nudged(HostTensors parameters, Draw& d) {
  for (auto& [name, t] : parameters) {
    auto* p = reinterpret_cast<float*>(t.data.data());
    for (int64_t i = 0; i < t.elements(); ++i)
      p[i] = std::nextafter(p[i], d.chance(50) ? HUGE_VALF : -HUGE_VALF);
  }
  return parameters;
}

// In f32 or bf16: one step, every gradient within 4x of one rank's own error.
CaseResult run_rounded(const Case& c, Dtype dtype) {
  CaseResult result;
  result.ranks = c.plan.mesh.ranks();
  Truth truth = make_truth(c);
  // The truth starts from what f32 can hold.
  HostTensors parameters;
  for (auto& [name, t] : truth.parameters) {
    parameters[name] = convert(t, Dtype::f32);
    t = convert(parameters[name], Dtype::f64);
  }
  for (HostTensors& m : truth.batch.microbatches)
    m["weights"] = convert(convert(m["weights"], Dtype::f32), Dtype::f64);
  truth.reference = reference_step(truth.model, truth.parameters, truth.batch);
  const Model model = with_dtype(truth.model, dtype);
  auto errors = [&](const Plan& plan, const HostTensors& from) {
    std::map<std::string, double> relative;
    for (const auto& [name, found] : rounded_gradients(model, plan, truth, from)) {
      const HostTensor& expected = truth.reference.gradients.at(name);
      const double scale = std::max(norm(expected), truth.reference.absolute_norms.at(name));
      relative[name] = scale == 0 ? 0 : distance(found, expected) / scale;
    }
    return relative;
  };
  // One rank's own error on a tensor is the largest of three: as it is, and from parameters that
  // are off by a rounding. A small tensor's error is a matter of luck, and can be zero, so neither
  // is it taken for less than the median of all tensors' errors.
  const Plan one_rank = one_rank_plan(c.plan.microbatches);
  std::map<std::string, double> own = errors(one_rank, parameters);
  Draw d(c.seed, 4);
  for (int i = 0; i < 2; ++i)
    for (const auto& [name, error] : errors(one_rank, nudged(parameters, d)))
      own[name] = std::max(own[name], error);
  std::vector<double> sorted;
  for (const auto& [name, error] : own) sorted.push_back(error);
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  for (const auto& [name, error] : errors(c.plan, parameters)) {
    const double bound = 4 * std::max(own.at(name), median);
    result.worst = std::max(result.worst, error == 0 ? 0 : error / bound);
    if (!(error <= bound))
      result.what +=
          fmt::format("gradient of {}: error {:.3g}, one rank's is {:.3g}, the median {:.3g}\n",
                      name, error, own.at(name), median);
  }
  if (!result.what.empty()) result.outcome = Outcome::failed;
  return result;
}

}  // namespace

CaseResult run_case(const Case& c, Dtype dtype) {
  try {
    const Model model = case_model(c);
    try {
      lower(model, c.plan, harness_options());
    } catch (const Error& e) {
      return {Outcome::refused, e.what(), 0, c.plan.mesh.ranks()};
    }
    return dtype == Dtype::f64 ? run_f64(c) : run_rounded(c, dtype);
  } catch (const std::exception& e) {
    return {Outcome::failed, e.what(), 0, c.plan.mesh.ranks()};
  }
}

std::string compare_step(const Programs& programs, const Truth& truth,
                         const SessionOptions& options, double* worst) {
  try {
    Session session(programs, options);
    session.set_states("param/", truth.parameters);
    session.step(truth.batch);
    session.check_replicas("");
    return differences(session, truth, worst);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace plait
