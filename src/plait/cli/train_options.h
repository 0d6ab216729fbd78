// The flags of `plait train`, which are also the keys of a run file (run_file.h).
#pragma once

#include "plait/cli/common.h"
#include "plait/cli/open_data.h"
#include "plait/model/lora.h"
#include "plait/model/preference.h"
#include "plait/train/trainer.h"

namespace plait {

struct SampleConfig {
  int64_t every = 0;
  std::vector<std::string> prompts;
  int64_t tokens = 64;
  double temperature = 0.8;
};

// Where the time of a step goes: --profile, --trace.
struct ProfileConfig {
  bool table = false, by_shape = false;
  int64_t steps = 5;        // the last of the run, its first left out
  std::string json, trace;  // files; empty: none
  bool asked() const { return table || !json.empty() || !trace.empty(); }
};

struct TrainOptions : CommonOptions {
  DataFlags data;
  TrainConfig config;
  SampleConfig samples;
  ProfileConfig profile;
  std::optional<int64_t> steps, epochs;
  int64_t microbatches = 1;                              // without a plan
  std::string recompute;                                 // empty: as the plan says
  std::vector<std::pair<std::string, double>> settings;  // of the optimizer, as given
  LoraConfig lora;                                       // rank 0: none
  TrainOptions() { lora.rank = 0; }
  PreferenceOptions preference;
  std::vector<std::string> trained;   // patterns; empty: all
  std::vector<std::string> no_decay;  // patterns
  // Flags given that mean nothing without an adapter, pairs, a profile.
  std::vector<std::string> of_adapters, of_pairs, of_profile;
  std::string init, adapter, out, save_dtype;
  bool no_dropout = false, from_scratch = false, merge = false, resume = false, dry_run = false,
       json = false;
};

void add_train_options(CLI::App& command, TrainOptions& options);
// After parsing: fills of_adapters and of_pairs.
void note_given(const CLI::App& command, TrainOptions& options);

}  // namespace plait
