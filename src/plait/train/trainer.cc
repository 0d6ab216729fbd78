#include "plait/train/trainer.h"

#include <chrono>
#include <cmath>
#include <set>

#include "plait/base/digest.h"
#include "plait/train/digest_tensors.h"

namespace plait {

namespace {

void check(const TrainConfig& c) {
  if (c.steps < 1) fail("{} steps; needs 1 or more", c.steps);
  if (c.eval_every < 0 || c.eval_batches < 0)
    fail("validation every {} steps over {} batches; needs 0 or more", c.eval_every,
         c.eval_batches);
  if (c.patience < 0 || !(c.least_gain >= 0))
    fail("patience of {} validations, least gain {}; needs 0 or more", c.patience, c.least_gain);
  if (c.patience > 0 && c.eval_every == 0)
    fail("patience of {} validations, but none takes place; set how often to validate", c.patience);
  if (c.checkpoint_every < 0 || c.keep_last < 0 || c.noise_every < 0)
    fail("a checkpoint every {} steps, {} kept, noise every {} steps; needs 0 or more",
         c.checkpoint_every, c.keep_last, c.noise_every);
  if (c.checkpoint_every > 0 && c.checkpoints.empty())
    fail("a checkpoint every {} steps, but no folder for them", c.checkpoint_every);
}

Programs train_programs(const Model& model, const Plan& plan, const Optimizer& optimizer,
                        int threads) {
  LowerOptions options;
  options.threads = threads;
  options.optimizer = optimizer;
  return lower(model, plan, options).programs;
}

Programs eval_programs(const Model& model, const Plan& plan, int threads) {
  LowerOptions options;
  options.threads = threads;
  options.train = false;
  return lower(model, plan, options).programs;
}

SessionOptions session_options() {
  SessionOptions options;
  options.pin = true;
  return options;
}

// The learning rate's own count of steps is the run's.
TrainConfig with_length(TrainConfig c) {
  c.rate.steps = c.steps;
  check_learning_rate(c.rate);
  return c;
}

HostTensor hyper(Dtype dtype, double rate, int64_t step) {
  HostTensor t(dtype, {2});
  dispatch_float(dtype, [&]<class T>() {
    t.as<T>()[0] = static_cast<T>(rate);
    t.as<T>()[1] = static_cast<T>(step);
  });
  return t;
}

// The first micro-batch, or the first half of its slots if there is but one, as a batch whose loss
// is the mean over its own labelled tokens. Returns how many these are.
int64_t make_small(const Batch& whole, const BatchLayout& layout, Batch& small) {
  small.microbatches = {whole.microbatches[0]};
  HostTensor& weights = small.microbatches[0].at("weights");
  const int64_t slots = layout.microbatches > 1 ? layout.slots : layout.slots / 2;
  int64_t labelled = 0;
  for (int64_t i = 0; i < slots * layout.slot_tokens; ++i)
    if (weights.at(i) != 0) ++labelled;
  dispatch_float(weights.dtype, [&]<class T>() {
    for (int64_t i = 0; i < weights.elements(); ++i) {
      const bool counts = i < slots * layout.slot_tokens && weights.as<T>()[i] != T(0);
      weights.as<T>()[i] = counts ? static_cast<T>(1.0 / static_cast<double>(labelled)) : T(0);
    }
  });
  return labelled;
}

// Tensors "PREFIX/NAME" by NAME.
HostTensors with_prefix(const HostTensors& tensors, const std::string& prefix) {
  HostTensors result;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) result[name.substr(prefix.size())] = tensor;
  return result;
}

std::string hex(uint64_t digest) { return fmt::format("{:016x}", digest); }

// Of the model with one slot: the number of slots is the layout's matter.
uint64_t model_digest(const Model& model) {
  const int64_t unit = model.extent("T").unit;
  return digest(print_model(with_extent(model, "T", unit, unit)));
}

// In words: the first result that is not finite, when the session repeats this batch.
std::string first_not_finite(Session& session, const Batch& batch) {
  try {
    session.watch({.finite = true, .replicas = true});
    session.step(batch);
  } catch (const Error& e) {
    return e.what();
  }
  return "no single result is infinite";
}

}  // namespace

double evaluate(Session& session, const Data& data, const BatchLayout& layout, int64_t batches,
                PreferenceReference* reference) {
  const int64_t all = data.validation_batches(layout);
  if (batches == 0 || batches > all) batches = all;
  if (batches == 0) fail("there is nothing to validate on: no text is held out");
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < batches; ++i) {
    int64_t labelled = 0;
    Batch batch = data.validation_batch(layout, i, labelled);
    if (reference != nullptr) labelled = reference->prepare(batch);
    if (labelled == 0) continue;
    session.step(batch);
    const double loss = session.scalar("loss");
    if (!std::isfinite(loss))
      fail("validation batch {}: the loss is {}; {}", i, loss, first_not_finite(session, batch));
    sum += loss * static_cast<double>(labelled);
    count += labelled;
  }
  if (count == 0) fail("the text that is held out has no token that counts");
  return sum / static_cast<double>(count);
}

Trainer::Trainer(const Model& model, const Plan& plan, const Data& data, const TrainConfig& config,
                 std::unique_ptr<PreferenceReference> reference)
    : model_((check(config), model)),
      plan_(plan),
      data_(data),
      config_(with_length(config)),
      layout_(batch_layout(model, plan.microbatches)),
      reference_(std::move(reference)),
      session_(train_programs(model, plan, config.optimizer, config.threads), session_options()),
      spike_watch_(config.spike_deviations),
      early_(config.patience, config.least_gain) {
  if (data.paired() != (reference_ != nullptr))
    fail("the data {} preference pairs, and {} reference model was given",
         data.paired() ? "are" : "are no", reference_ == nullptr ? "no" : "a");
  if (layout_.slot_tokens != data.slot_tokens())
    fail("slots of {} tokens in the model, of {} in the data", layout_.slot_tokens,
         data.slot_tokens());
  if (!config.checkpoints.empty())
    store_ = std::make_unique<CheckpointStore>(config.checkpoints, config.keep_last);
}

void Trainer::set_parameters(const HostTensors& parameters) {
  session_.set_states("param/", parameters);
  HostTensors frozen;
  for (const Param& p : model_.params)
    if (p.frozen) frozen[p.name] = parameters.at(p.name);
  frozen_digest_ = frozen.empty() ? "" : digest_tensors(frozen);
}

// ---- one step -------------------------------------------------------------------------------

Batch Trainer::batch_of(int64_t step, StepFacts& facts) {
  Batch batch = data_.training_batch(layout_, step, &facts);
  check_batch(batch, model_);
  if (reference_ != nullptr) facts.labelled = reference_->prepare(batch);
  return batch;
}

StepReport Trainer::step() {
  const auto begin = std::chrono::steady_clock::now();
  StepFacts facts;
  Batch batch = batch_of(done_, facts);
  StepReport r;
  r.step = done_ + 1;
  r.steps = config_.steps;
  r.learning_rate = plait::learning_rate(config_.rate, r.step);
  r.tokens = layout_.tokens();
  r.labelled = facts.labelled;
  r.epochs = facts.epochs;
  batch.step["hyper"] = hyper(wide(model_.dtype), r.learning_rate, r.step);
  std::optional<std::pair<int64_t, double>> small;
  if (config_.noise_every > 0 && done_ % config_.noise_every == 0) small = measure_small(batch);
  const bool timed =
      keep_times_ > 0 && (config_.patience > 0 || r.step > config_.steps - keep_times_);
  if (timed)
    timed_session_step(batch, r.step);
  else
    session_.step(batch);
  r.loss = session_.scalar("loss");
  const double squares = session_.scalar("grad_sum_squares");
  r.gradient_norm = std::sqrt(squares);
  if (!std::isfinite(r.loss) || !std::isfinite(r.gradient_norm)) diagnose(batch, r);
  if (small) noise_.add(small->first, small->second, facts.labelled, squares);
  if (reference_ != nullptr) r.preference = reference_->metrics(session_, facts.labelled);
  r.noise_scale = noise_.tokens();
  r.spike = spike_watch_.see(r.loss);
  if (r.spike) spikes_.emplace_back(r.step, *r.spike);
  ++done_;
  tokens_seen_ += r.labelled;
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  r.tokens_per_second = static_cast<double>(r.tokens) / r.seconds;
  if (timed) times_.back().seconds = r.seconds;
  return r;
}

void Trainer::timed_session_step(const Batch& batch, int64_t step) {
  session_.watch({.times = true});
  const auto begin = std::chrono::steady_clock::now();
  session_.step(batch);
  StepTimes t;
  t.step = step;
  t.session_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  t.actions = session_.times();
  times_.push_back(std::move(t));
  if (static_cast<int64_t>(times_.size()) > keep_times_) times_.pop_front();
}

std::optional<std::pair<int64_t, double>> Trainer::measure_small(const Batch& batch) {
  Batch small;
  const int64_t labelled = make_small(batch, layout_, small);
  if (labelled == 0) return std::nullopt;
  if (noise_session_ == nullptr) {
    Plan plan = plan_;
    plan.microbatches = 1;
    Optimizer none;
    none.name = "none";
    noise_session_ = std::make_unique<Session>(train_programs(model_, plan, none, config_.threads),
                                               session_options());
  }
  noise_session_->set_states("param/", parameters());
  small.step = batch.step;
  noise_session_->step(small);
  return std::pair(labelled, noise_session_->scalar("grad_sum_squares"));
}

void Trainer::diagnose(const Batch& batch, const StepReport& r) {
  const std::string what = fmt::format("step {}: the loss is {} and the gradient norm {}", r.step,
                                       r.loss, r.gradient_norm);
  fail(
      "{}; {}. Nothing was changed by this step. A smaller learning rate than {} or clipping may "
      "help",
      what, first_not_finite(session_, batch), r.learning_rate);
}

// ---- the loop -------------------------------------------------------------------------------

Ending Trainer::run(const std::function<void(const StepReport&)>& progress,
                    const std::atomic<bool>* stop) {
  open_logs();
  bool early = early_.over();
  while (done_ < config_.steps && !early) {
    if (stop != nullptr && *stop) {
      if (store_ != nullptr) save_checkpoint();
      return Ending::stopped;
    }
    StepReport r = step();
    const bool last = done_ == config_.steps;
    std::string failed;
    try {
      if (config_.eval_every > 0 && (done_ % config_.eval_every == 0 || last)) {
        r.validation_loss = validation_loss();
        early = early_.see(*r.validation_loss);
        r.best = early_.better();
      }
    } catch (const Error& e) {
      failed = e.what();
    }
    const bool due = config_.checkpoint_every > 0 && done_ % config_.checkpoint_every == 0;
    r.checkpoint = store_ != nullptr && (due || last || early);
    write_metrics(r);
    // A best model is saved by `progress`: before the checkpoint, after which nobody would.
    if (progress && failed.empty()) progress(r);
    if (r.checkpoint) save_checkpoint();
    if (!failed.empty()) fail("validation after step {}: {}", done_, failed);
  }
  return early && done_ < config_.steps ? Ending::early : Ending::finished;
}

int64_t Trainer::eval_batches() const {
  const int64_t all = data_.validation_batches(layout_);
  return config_.eval_batches == 0 ? all : std::min(all, config_.eval_batches);
}

double Trainer::validation_loss() {
  if (eval_ == nullptr)
    eval_ =
        std::make_unique<Session>(eval_programs(model_, plan_, config_.threads), session_options());
  eval_->set_states("param/", parameters());
  return evaluate(*eval_, data_, layout_, eval_batches(), reference_.get());
}

// ---- metrics --------------------------------------------------------------------------------

// Lines after the step that is resumed are written again.
void Trainer::open_logs() {
  if (!config_.metrics.empty() && metrics_ == nullptr)
    metrics_ = std::make_unique<MetricsLog>(config_.metrics, resumed_);
  if (!config_.tensorboard.empty() && tensorboard_ == nullptr)
    tensorboard_ = std::make_unique<TensorBoardWriter>(config_.tensorboard, resumed_);
}

void Trainer::write_metrics(const StepReport& r) {
  nlohmann::ordered_json line = {{"step", r.step},
                                 {"loss", r.loss},
                                 {"learning_rate", r.learning_rate},
                                 {"gradient_norm", r.gradient_norm},
                                 {"tokens", r.tokens},
                                 {"labelled", r.labelled},
                                 {"seconds", r.seconds},
                                 {"tokens_per_second", r.tokens_per_second}};
  if (!r.epochs.empty()) line["epoch"] = *std::max_element(r.epochs.begin(), r.epochs.end());
  if (r.validation_loss) line["validation_loss"] = *r.validation_loss;
  if (r.noise_scale) line["noise_scale"] = *r.noise_scale;
  if (r.spike) line["spike"] = r.spike->deviations;
  if (r.preference) {
    line["reward_margin"] = r.preference->margin;
    line["reward_accuracy"] = r.preference->accuracy;
  }
  if (metrics_ != nullptr) metrics_->write(line);
  if (tensorboard_ == nullptr) return;
  for (const auto& [name, value] : line.items())
    if (name != "step") tensorboard_->scalar(name, r.step, value.get<double>());
  tensorboard_->flush();
}

void Trainer::log_text(const std::string& tag, const std::string& text) {
  if (tensorboard_ == nullptr) return;
  tensorboard_->text(tag, done_, text);
  tensorboard_->flush();
}

// ---- checkpoints ----------------------------------------------------------------------------

std::vector<std::string> Trainer::saved_prefixes() const {
  std::set<std::string> prefixes = {"param/"};
  for (const ParamUpdate& u : choose_updates(config_.optimizer, model_))
    for (const StateDef& s : u.states) prefixes.insert(s.prefix + "/");
  return {prefixes.begin(), prefixes.end()};
}

nlohmann::ordered_json Trainer::identity() const {
  return {{"model", hex(model_digest(model_))},
          {"frozen_parameters", frozen_digest_},
          {"reference_model", reference_ ? reference_->digest() : ""},
          {"data", hex(data_.digest())},
          {"samples_of_a_step", layout_.samples()},
          {"tokens_of_a_slot", layout_.slot_tokens},
          {"optimizer", config_.optimizer.name},
          {"objective", data_.paired() ? "preference" : "next token"}};
}

void Trainer::save_checkpoint() {
  PLAIT_CHECK(store_ != nullptr, "a checkpoint without a folder");
  HostTensors tensors;
  for (const std::string& prefix : saved_prefixes())
    for (auto& [name, tensor] : session_.gather(prefix)) tensors[prefix + name] = std::move(tensor);
  for (const Param& p : model_.params)
    if (p.frozen) tensors.erase("param/" + p.name);
  const nlohmann::ordered_json facts = {
      {"identity", identity()},         {"description", description_},
      {"tokens_seen", tokens_seen_},    {"seed", config_.seed},
      {"spikes", spike_watch_.state()}, {"noise", noise_.state()},
      {"validation", early_.state()}};
  store_->save(done_, facts, tensors);
}

void Trainer::resume(const Checkpoint& c) {
  const nlohmann::ordered_json here = identity();
  const auto& there = c.trainer.at("identity");
  for (const auto& [name, value] : here.items())
    if (!there.contains(name) || there.at(name) != value)
      fail(
          "the checkpoint of step {} is of another run: '{}' was {}, here it is {}; resume with "
          "what it was, or start anew with --init from its exported parameters",
          c.step, name, there.contains(name) ? there.at(name).dump() : "not recorded",
          value.dump());
  for (const std::string& prefix : saved_prefixes()) {
    HostTensors states = with_prefix(c.tensors, prefix);
    if (prefix == "param/")
      for (auto& [name, tensor] : parameters()) states.try_emplace(name, std::move(tensor));
    session_.set_states(prefix, states);
  }
  session_.check_replicas("");
  spike_watch_.restore(c.trainer.at("spikes"));
  noise_.restore(c.trainer.at("noise"));
  early_.restore(c.trainer.at("validation"));
  tokens_seen_ = c.trainer.at("tokens_seen");
  done_ = c.step;
  resumed_ = c.step;
  if (store_ != nullptr) store_->discard_after(c.step);
}

}  // namespace plait
