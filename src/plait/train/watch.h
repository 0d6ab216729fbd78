// What a training loop watches beside the loss itself: losses that stand out, gradients' noise,
// and whether validation still improves. Each is a small state that a checkpoint carries, so that
// a resumed run watches on as if it had not stopped.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

namespace plait {

// Tells a loss that stands out from those before it: above their moving mean by more than
// `deviations` of their moving standard deviation, and by at least 1 %. The averages follow the
// last 50 steps or so; a spike moves them no further than the threshold, so two in a row are told.
class SpikeWatch {
 public:
  struct Spike {
    double loss = 0, expected = 0, deviations = 0;
  };
  explicit SpikeWatch(double deviations = 6) : deviations_(deviations) {}
  std::optional<Spike> see(double loss);
  nlohmann::ordered_json state() const;
  void restore(const nlohmann::json& state);

 private:
  double deviations_;
  int64_t seen_ = 0;
  double mean_ = 0, variance_ = 0;
};

// The simple noise scale of gradients (McCandlish et al., "An empirical model of large-batch
// training", 2018, appendix A.1): the batch size, in tokens, at which noise and signal are equal.
// From squared gradient norms of a small and of a large batch of mean gradients:
//   signal = (B |G_B|^2 - b |G_b|^2) / (B - b),  noise = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)
// Both are averaged over measurements before their ratio is taken, since each is unbiased and the
// ratio is not.
class NoiseScale {
 public:
  void add(int64_t small_tokens, double small_squares, int64_t large_tokens, double large_squares);
  std::optional<double> tokens() const;  // none before a measurement, or with no signal in sight
  nlohmann::ordered_json state() const;
  void restore(const nlohmann::json& state);

 private:
  int64_t seen_ = 0;
  double signal_ = 0, noise_ = 0;
};

// Stops when `patience` validations in a row were no better than the best by `least`.
class EarlyStop {
 public:
  explicit EarlyStop(int64_t patience = 0, double least = 0) : patience_(patience), least_(least) {}
  bool see(double validation_loss);  // true: stop. Never, if patience is 0
  std::optional<double> best() const { return best_; }
  bool better() const { return best_ && worse_ == 0; }  // the last one was the best
  bool over() const { return patience_ > 0 && worse_ >= patience_; }
  nlohmann::ordered_json state() const;
  void restore(const nlohmann::json& state);

 private:
  int64_t patience_, worse_ = 0;
  double least_;
  std::optional<double> best_;
};

}  // namespace plait
