// Progress of a training run: on a terminal a bar that redraws itself, elsewhere a plain line
// every few seconds. The first and the last step, and every validation, always get a line.
//
//   Progress progress(stdout);
//   trainer.run([&](const StepReport& r) { progress.step(r); });
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "plait/train/trainer.h"

namespace plait {

class Progress {
 public:
  explicit Progress(std::FILE* out);
  void step(const StepReport& report);

 private:
  using Clock = std::chrono::steady_clock;
  std::FILE* out_;
  bool terminal_;
  Clock::time_point start_, last_line_;
  int64_t first_step_ = 0;
};

// Of work that is counted in bytes: a bar on a terminal, elsewhere one line when it begins and one
// when it is done.
class BytesProgress {
 public:
  explicit BytesProgress(std::FILE* out);
  void show(const std::string& what, int64_t done, int64_t total);

 private:
  std::FILE* out_;
  bool terminal_;
  std::string what_;  // shown last
  std::chrono::steady_clock::time_point begin_, drawn_;
};

// "step  40/400  loss 2.31  rate 1.9e-03  norm 0.82  5 210 tokens/s  1:12 left"
std::string progress_line(const StepReport& report, double seconds_left);
std::string progress_bar(int64_t done, int64_t total, int width);  // "[####....]"
std::string duration_text(double seconds);                         // "1:05", "2:03:00"

}  // namespace plait
