#include "plait/train/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "plait/base/error.h"

namespace plait {

namespace {

// What is left of the way from the peak to the final rate when a share of the fall is done; 1 at
// 0, and 0 at 1.
struct Fall {
  const char* name;
  double (*left)(double done);
};
constexpr Fall kFalls[] = {
    {"linear", [](double done) { return 1 - done; }},
    {"cosine", [](double done) { return 0.5 * (1 + std::cos(M_PI * done)); }},
    {"root", [](double done) { return 1 - std::sqrt(done); }}};

const Fall& find_fall(const std::string& name) {
  for (const Fall& fall : kFalls)
    if (name == fall.name) return fall;
  fail("unknown decay '{}'; known are {}", name, fmt::join(decay_kinds(), ", "));
}

// Steps before the fall begins: the warm-up, and the stable part.
int64_t steps_before_fall(const LearningRate& c) {
  const int64_t warmup = std::min(c.warmup_steps, c.steps);
  if (c.kind != "wsd") return warmup;
  const auto decay = static_cast<int64_t>(std::ceil(c.decay_share * static_cast<double>(c.steps)));
  return std::max(warmup, c.steps - decay);
}

}  // namespace

std::vector<std::string> learning_rate_kinds() { return {"constant", "linear", "cosine", "wsd"}; }

std::vector<std::string> decay_kinds() {
  std::vector<std::string> names;
  for (const Fall& fall : kFalls) names.emplace_back(fall.name);
  return names;
}

void check_learning_rate(const LearningRate& c) {
  const std::vector<std::string> kinds = learning_rate_kinds();
  if (std::find(kinds.begin(), kinds.end(), c.kind) == kinds.end())
    fail("unknown learning-rate schedule '{}'; known are {}", c.kind, fmt::join(kinds, ", "));
  if (c.steps < 1) fail("{} steps; needs 1 or more", c.steps);
  if (c.warmup_steps < 0) fail("{} warm-up steps; needs 0 or more", c.warmup_steps);
  if (!std::isfinite(c.peak) || c.peak <= 0)
    fail("learning rate {}; needs a positive number", c.peak);
  if (!(c.final_ratio >= 0 && c.final_ratio <= 1))
    fail("the last learning rate is {} of the largest; needs 0 to 1", c.final_ratio);
  if (!(c.decay_share >= 0 && c.decay_share <= 1))
    fail("the learning rate decays over {} of the steps; needs 0 to 1", c.decay_share);
  find_fall(c.decay);
}

double learning_rate(const LearningRate& c, int64_t step) {
  step = std::clamp<int64_t>(step, 1, c.steps);
  const int64_t warmup = std::min(c.warmup_steps, c.steps);
  if (step <= warmup)
    return c.peak * static_cast<double>(step) / static_cast<double>(c.warmup_steps);
  const int64_t before = steps_before_fall(c);
  if (c.kind == "constant" || step <= before) return c.peak;
  const double done = static_cast<double>(step - before) / static_cast<double>(c.steps - before);
  const double left = find_fall(c.kind == "wsd" ? c.decay : c.kind).left(done);
  return c.peak * (c.final_ratio + (1 - c.final_ratio) * left);
}

}  // namespace plait
