#include "plait/train/trainer.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace plait {

namespace {

void check(const TrainConfig& c) {
  check_learning_rate(rate_of(c));
  if (c.eval_every < 0 || c.eval_batches < 0)
    fail("validation every {} steps over {} batches; needs 0 or more", c.eval_every,
         c.eval_batches);
}

Programs train_programs(const Model& model, const Plan& plan, const TrainConfig& config) {
  check(config);
  LowerOptions options;
  options.optimizer = config.optimizer;
  return lower(model, plan, options).programs;
}

}  // namespace

LearningRate rate_of(const TrainConfig& c) {
  LearningRate rate;
  rate.peak = c.learning_rate;
  rate.steps = c.steps;
  rate.warmup_steps = c.warmup_steps;
  rate.final_ratio = c.min_ratio;
  return rate;
}

double evaluate(Session& session, const Data& data, const BatchLayout& layout, int64_t batches) {
  const int64_t all = data.validation_batches(layout);
  if (batches == 0 || batches > all) batches = all;
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < batches; ++i) {
    int64_t labelled = 0;
    session.step(data.validation_batch(layout, i, labelled));
    const double loss = session.scalar("loss");
    if (!std::isfinite(loss)) fail("validation batch {}: the loss is {}", i, loss);
    sum += loss * static_cast<double>(labelled);
    tokens += labelled;
  }
  return sum / static_cast<double>(tokens);
}

Trainer::Trainer(const Model& model, const Plan& plan, const Data& data, const TrainConfig& config)
    : model_(model),
      plan_(plan),
      data_(data),
      config_(config),
      layout_(batch_layout(model, plan.microbatches)),
      session_(train_programs(model, plan, config), {}) {
  if (config.metrics.empty()) return;
  metrics_.open(config.metrics, std::ios::trunc);
  if (!metrics_) fail("metrics file '{}' cannot be written", config.metrics);
}

void Trainer::set_parameters(const HostTensors& parameters) {
  session_.set_states("param/", parameters);
}

StepReport Trainer::step() {
  const auto begin = std::chrono::steady_clock::now();
  StepReport r;
  r.step = done_ + 1;
  r.steps = config_.steps;
  r.learning_rate = plait::learning_rate(rate_of(config_), r.step);
  r.tokens = layout_.tokens();
  Batch batch = data_.training_batch(layout_, done_);
  check_batch(batch, model_);
  HostTensor hyper(model_.dtype, {2});
  dispatch_float(model_.dtype, [&]<class T>() {
    hyper.as<T>()[0] = static_cast<T>(r.learning_rate);
    hyper.as<T>()[1] = static_cast<T>(r.step);
  });
  batch.step["hyper"] = std::move(hyper);
  session_.step(batch);
  r.loss = session_.scalar("loss");
  r.gradient_norm = std::sqrt(session_.scalar("grad_sum_squares"));
  if (!std::isfinite(r.loss) || !std::isfinite(r.gradient_norm))
    fail(
        "step {}: the loss is {} and the gradient norm {}; a smaller learning rate than {} may "
        "help",
        r.step, r.loss, r.gradient_norm, r.learning_rate);
  ++done_;
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  r.tokens_per_second = static_cast<double>(r.tokens) / r.seconds;
  return r;
}

void Trainer::run(const std::function<void(const StepReport&)>& progress) {
  while (done_ < config_.steps) {
    StepReport r = step();
    if (config_.eval_every > 0 && (done_ % config_.eval_every == 0 || done_ == config_.steps))
      r.validation_loss = validation_loss();
    write_metrics(r);
    if (progress) progress(r);
  }
}

int64_t Trainer::eval_batches() const {
  const int64_t all = data_.validation_batches(layout_);
  return config_.eval_batches == 0 ? all : std::min(all, config_.eval_batches);
}

double Trainer::validation_loss() {
  if (eval_ == nullptr) {
    LowerOptions options;
    options.train = false;
    eval_ = std::make_unique<Session>(lower(model_, plan_, options).programs, SessionOptions{});
  }
  eval_->set_states("param/", parameters());
  return evaluate(*eval_, data_, layout_, eval_batches());
}

void Trainer::write_metrics(const StepReport& r) {
  if (config_.metrics.empty()) return;
  nlohmann::ordered_json line = {{"step", r.step},
                                 {"loss", r.loss},
                                 {"learning_rate", r.learning_rate},
                                 {"gradient_norm", r.gradient_norm},
                                 {"tokens", r.tokens},
                                 {"seconds", r.seconds},
                                 {"tokens_per_second", r.tokens_per_second}};
  if (r.validation_loss) line["validation_loss"] = *r.validation_loss;
  metrics_ << line.dump() << std::endl;
  if (!metrics_) fail("metrics file '{}' cannot be written", config_.metrics);
}

}  // namespace plait
