// Trainer: the training loop over a Session. It owns the order of things (data, learning rate,
// step, checks, validation, checkpoints, metrics), and knows nothing of ranks: the plan is inside
// the programs.
//
//   Trainer trainer(model, plan, data, config);
//   trainer.set_parameters(initial_parameters(model, config.seed));    // or: trainer.resume(...)
//   const Ending ending = trainer.run([](const StepReport& r) { ... }, stop);
//   HostTensors trained = trainer.parameters();
//
// Everything that a step depends on is in the parameters and the optimizer's states, the step
// number, and the small states of watch.h: a checkpoint holds these, by canonical global tensors,
// so a run may resume on any layout. On the same layout it goes on bit for bit.
//
// A loss or gradient that is not finite changes nothing (program/lower.h); the step is then
// repeated with every tensor looked at, and an Error thrown that names the first bad one, its
// block, micro-batch and step.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "plait/data/data.h"
#include "plait/io/checkpoint.h"
#include "plait/program/lower.h"
#include "plait/train/learning_rate.h"
#include "plait/train/metrics.h"
#include "plait/train/preference.h"
#include "plait/train/tensorboard.h"
#include "plait/train/watch.h"

namespace plait {

struct TrainConfig {
  int64_t steps = 100;
  LearningRate rate;
  uint64_t seed = 1;
  Optimizer optimizer;
  int threads = 1;  // compute threads of each rank

  int64_t eval_every = 0;    // steps between validations; 0: none in run()
  int64_t eval_batches = 8;  // of one step's tokens each; 0: all there are
  int64_t patience = 0;      // validations without a better one before the run ends; 0: never
  double least_gain = 0;     // what counts as better

  std::string checkpoints;       // folder; empty: none
  int64_t checkpoint_every = 0;  // steps; 0: only when the run ends or is stopped
  int64_t keep_last = 2;         // checkpoints; 0: all

  std::string metrics;      // JSON lines; empty: none
  std::string tensorboard;  // folder of event files; empty: none
  int64_t noise_every = 0;  // steps between measurements of the gradient noise scale; 0: none
  double spike_deviations = 6;
};

// What is reported of one step; `step` counts from 1.
struct StepReport {
  int64_t step = 0, steps = 0;
  double loss = 0;  // mean over the labelled tokens (or pairs) of the step, before its update
  double learning_rate = 0, gradient_norm = 0;
  int64_t tokens = 0;          // slots included
  int64_t labelled = 0;        // that count in the loss
  std::vector<double> epochs;  // by source
  double seconds = 0, tokens_per_second = 0;
  std::optional<double> validation_loss;
  std::optional<double> noise_scale;  // in labelled tokens
  std::optional<SpikeWatch::Spike> spike;
  std::optional<PreferenceMetrics> preference;
  bool best = false;        // the validation loss is the best so far
  bool checkpoint = false;  // one is saved after this step
};

enum class Ending : uint8_t { finished, stopped, early };

// The mean validation loss over `batches` validation batches (0: all), on a forward-only session.
// `step` is a run of the session on a batch; it may prepare the batch first.
double evaluate(Session& session, const Data& data, const BatchLayout& layout, int64_t batches,
                PreferenceReference* reference = nullptr);

class Trainer {
 public:
  // `model` has a loss, and as many tokens per slot as the data; `data` must outlive the trainer.
  // For preference pairs the model's head is Head::preference, and `reference` gives the
  // starting model's losses.
  Trainer(const Model& model, const Plan& plan, const Data& data, const TrainConfig& config,
          std::unique_ptr<PreferenceReference> reference = nullptr);

  void set_parameters(const HostTensors& parameters);
  HostTensors parameters() const { return session_.gather("param/"); }

  // What has to be the same for a run to go on from a checkpoint, by name.
  nlohmann::ordered_json identity() const;
  // After set_parameters, for the parameters that the checkpoint leaves out because they do not
  // change. Throws Error naming what is not the same.
  void resume(const Checkpoint& checkpoint);
  void save_checkpoint();
  // Kept beside identity() in every checkpoint: how to make a model folder of it again.
  void set_description(nlohmann::ordered_json description) {
    description_ = std::move(description);
  }
  int64_t done() const { return done_; }
  const EarlyStop& early() const { return early_; }
  // Of config.checkpoints; none: no folder. Reading what is there goes through it too.
  const CheckpointStore* store() const { return store_.get(); }

  StepReport step();  // the next one
  // Goes on until the last step, or until `stop` is set, which is looked at between steps.
  Ending run(const std::function<void(const StepReport&)>& progress,
             const std::atomic<bool>* stop = nullptr);
  // Under the same plan. The programs for it are made when it is first called.
  double validation_loss();
  // Records when each action ran in the last `steps` steps of the run: in each step if patience
  // may end it early, else only in those that are last by their number.
  void keep_times(int64_t steps) { keep_times_ = steps; }
  const std::deque<StepTimes>& times() const { return times_; }  // the oldest first
  int64_t eval_batches() const;  // as configured, at most what the data has
  void log_text(const std::string& tag, const std::string& text);  // a sample, for TensorBoard

  const Session& session() const { return session_; }
  const BatchLayout& layout() const { return layout_; }
  // Losses that stood out, in this run.
  const std::vector<std::pair<int64_t, SpikeWatch::Spike>>& spikes() const { return spikes_; }

 private:
  Batch batch_of(int64_t step, StepFacts& facts);
  // Labelled tokens of a part of the batch, and the squared norm of its mean gradient.
  std::optional<std::pair<int64_t, double>> measure_small(const Batch& batch);
  [[noreturn]] void diagnose(const Batch& batch, const StepReport& report);
  void open_logs();
  void write_metrics(const StepReport& report);
  std::vector<std::string> saved_prefixes() const;
  void timed_session_step(const Batch& batch, int64_t step);

  Model model_;
  Plan plan_;
  const Data& data_;
  TrainConfig config_;
  BatchLayout layout_;
  std::unique_ptr<PreferenceReference> reference_;
  Session session_;
  std::unique_ptr<Session> eval_, noise_session_;
  std::unique_ptr<CheckpointStore> store_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
  SpikeWatch spike_watch_;
  NoiseScale noise_;
  EarlyStop early_;
  std::vector<std::pair<int64_t, SpikeWatch::Spike>> spikes_;
  nlohmann::ordered_json description_;
  std::string frozen_digest_;
  int64_t done_ = 0, tokens_seen_ = 0;
  int64_t keep_times_ = 0;
  std::deque<StepTimes> times_;
  std::optional<int64_t> resumed_;
};

}  // namespace plait
