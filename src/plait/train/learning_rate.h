// Learning rates over a run: a pure function of a configuration and a step.
//
//   LearningRate c;
//   c.kind = "wsd";
//   c.steps = 1000;
//   check_learning_rate(c);
//   double rate = learning_rate(c, 1);   // of the first step
//
// Every kind begins with the warm-up, in which the rate of step s is peak s / warmup_steps, and
// ends at peak x final_ratio in the last step (constant: at the peak):
//   constant  the peak
//   linear    falls along a line
//   cosine    falls along half a cosine
//   wsd       warm-up, stable, decay: the peak, then a fall over the last decay_share of the steps
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plait {

struct LearningRate {
  std::string kind = "cosine";
  double peak = 1e-3;
  int64_t steps = 100;
  int64_t warmup_steps = 10;
  double final_ratio = 0.1;      // rate of the last step / peak
  double decay_share = 0.2;      // wsd: of all steps, rounded up to whole ones
  std::string decay = "linear";  // wsd: linear, cosine, or root (1 - root of the share done)
};

std::vector<std::string> learning_rate_kinds();
std::vector<std::string> decay_kinds();  // of wsd

// Throws Error naming the field, what it is and what it must be.
void check_learning_rate(const LearningRate& config);

// The rate of a step, counted from 1. Of steps beyond the last: that of the last.
double learning_rate(const LearningRate& config, int64_t step);

}  // namespace plait
