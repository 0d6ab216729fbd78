// --profile and --trace of `plait train`: what is asked for, checked before the run; the machine
// measured before its threads exist; table and files made after it.
#pragma once

#include <optional>

#include "plait/cli/train_options.h"
#include "plait/exec/limits.h"

namespace plait {

class TrainProfile {
 public:
  explicit TrainProfile(const TrainOptions& options) : o_(options) {}

  // Flags that mean nothing, files that cannot be written: throws Error.
  void check() const;
  // When the number of steps is known; a resumed run may have fewer left, and then a note says so.
  void check_steps() const;
  // "  would profile steps 96 to 100 ...": for --dry-run; empty: nothing is asked for.
  std::string plan(int64_t done) const;
  nlohmann::ordered_json facts(int64_t done) const;  // the same

  void measure(int threads, Dtype dtype);  // before the trainer exists
  void begin(Trainer& trainer);            // before its first step
  void finish(const Trainer& trainer);     // after its last

 private:
  bool averages() const { return o_.profile.table || !o_.profile.json.empty(); }
  int64_t averaged(int64_t done) const;  // how many steps, of those after `done`
  const TrainOptions& o_;
  std::optional<Limits> limits_;
  int64_t first_ = 1;  // step of this run
};

}  // namespace plait
