// Trainer: the training loop over a Session. It owns the order of things (data, learning rate,
// step, checks, metrics), and knows nothing of ranks: the plan is inside the programs.
//
//   Trainer trainer(model, plan, data, config);
//   trainer.set_parameters(initial_parameters(model, config.seed));
//   trainer.run([](const StepReport& r) { fmt::print("{} {}\n", r.step, r.loss); });
//   HostTensors trained = trainer.parameters();
//
// A loss or gradient that is not finite throws Error naming the step. Metrics are JSON lines, one
// for each step, written when the step ends.
#pragma once

#include <fstream>
#include <functional>
#include <memory>
#include <optional>

#include "plait/data/data.h"
#include "plait/program/lower.h"
#include "plait/train/learning_rate.h"

namespace plait {

struct TrainConfig {
  int64_t steps = 100;
  double learning_rate = 1e-3;
  int64_t warmup_steps = 10;  // the rate grows linearly over these, then falls along a cosine
  double min_ratio = 0.1;     // last rate / largest rate
  uint64_t seed = 1;
  Optimizer optimizer;
  int64_t eval_every = 0;    // steps between validations; 0: none in run()
  int64_t eval_batches = 8;  // of one step's tokens each; 0: all there are
  std::string metrics;       // path; empty: none
};

// What is reported of one step; `step` counts from 1.
struct StepReport {
  int64_t step = 0, steps = 0;
  double loss = 0;  // mean over the tokens of the step, before its update
  double learning_rate = 0, gradient_norm = 0;
  int64_t tokens = 0;
  double seconds = 0, tokens_per_second = 0;
  std::optional<double> validation_loss;
};

// The schedule of a run: warm-up, then a cosine.
LearningRate rate_of(const TrainConfig& config);

// The mean validation loss over `batches` validation batches (0: all), on a forward-only session.
double evaluate(Session& session, const Data& data, const BatchLayout& layout, int64_t batches);

class Trainer {
 public:
  // `model` has a loss, and as many tokens per slot as the data; `data` must outlive the trainer.
  Trainer(const Model& model, const Plan& plan, const Data& data, const TrainConfig& config);

  void set_parameters(const HostTensors& parameters);
  HostTensors parameters() const { return session_.gather("param/"); }
  StepReport step();  // the next one
  void run(const std::function<void(const StepReport&)>& progress);
  // Under the same plan. The programs for it are made when it is first called.
  double validation_loss();
  int64_t eval_batches() const;  // as configured, at most what the data has

  const Session& session() const { return session_; }
  const BatchLayout& layout() const { return layout_; }

 private:
  void write_metrics(const StepReport& report);
  Model model_;
  Plan plan_;
  const Data& data_;
  TrainConfig config_;
  BatchLayout layout_;
  Session session_;
  std::unique_ptr<Session> eval_;
  std::ofstream metrics_;
  int64_t done_ = 0;
};

}  // namespace plait
