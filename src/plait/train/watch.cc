#include "plait/train/watch.h"

#include <algorithm>
#include <cmath>

namespace plait {

namespace {

constexpr int64_t kLearningSteps = 20;  // before these the averages say nothing
constexpr double kLossRate = 1.0 / 50, kNoiseRate = 0.1;

// An average that starts as the plain mean and ends as an exponential one.
double rate(int64_t seen, double slowest) {
  return std::max(slowest, 1 / static_cast<double>(seen));
}

}  // namespace

std::optional<SpikeWatch::Spike> SpikeWatch::see(double loss) {
  std::optional<Spike> spike;
  if (seen_ >= kLearningSteps) {
    const double deviation = std::sqrt(variance_);
    const double threshold = mean_ + std::max(deviations_ * deviation, 0.01 * std::abs(mean_));
    if (loss > threshold) {
      spike = Spike{loss, mean_, deviation > 0 ? (loss - mean_) / deviation : INFINITY};
      loss = threshold;
    }
  }
  const double a = rate(++seen_, kLossRate), off = loss - mean_;
  mean_ += a * off;
  variance_ = (1 - a) * (variance_ + a * off * off);
  return spike;
}

nlohmann::ordered_json SpikeWatch::state() const {
  return {{"seen", seen_}, {"mean", mean_}, {"variance", variance_}};
}

void SpikeWatch::restore(const nlohmann::json& s) {
  seen_ = s.at("seen");
  mean_ = s.at("mean");
  variance_ = s.at("variance");
}

void NoiseScale::add(int64_t small_tokens, double small_squares, int64_t large_tokens,
                     double large_squares) {
  if (small_tokens < 1 || large_tokens <= small_tokens) return;
  const auto b = static_cast<double>(small_tokens), all = static_cast<double>(large_tokens);
  const double signal = (all * large_squares - b * small_squares) / (all - b);
  const double noise = (small_squares - large_squares) / (1 / b - 1 / all);
  const double a = rate(++seen_, kNoiseRate);
  signal_ += a * (signal - signal_);
  noise_ += a * (noise - noise_);
}

std::optional<double> NoiseScale::tokens() const {
  if (seen_ == 0 || signal_ <= 0) return std::nullopt;
  return std::max(0.0, noise_ / signal_);
}

nlohmann::ordered_json NoiseScale::state() const {
  return {{"seen", seen_}, {"signal", signal_}, {"noise", noise_}};
}

void NoiseScale::restore(const nlohmann::json& s) {
  seen_ = s.at("seen");
  signal_ = s.at("signal");
  noise_ = s.at("noise");
}

bool EarlyStop::see(double loss) {
  if (!best_ || loss < *best_ - least_) {
    best_ = loss;
    worse_ = 0;
  } else {
    ++worse_;
  }
  return over();
}

nlohmann::ordered_json EarlyStop::state() const {
  nlohmann::ordered_json s = {{"worse", worse_}};
  if (best_) s["best"] = *best_;
  return s;
}

void EarlyStop::restore(const nlohmann::json& s) {
  worse_ = s.at("worse");
  best_.reset();
  if (s.contains("best")) best_ = s.at("best").get<double>();
}

}  // namespace plait
