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

struct TrainOptions : CommonOptions {
  DataFlags data;
  TrainConfig config;
  SampleConfig samples;
  std::optional<int64_t> steps, epochs;
  int64_t microbatches = 1;                              // without a plan
  std::string recompute;                                 // empty: as the plan says
  std::vector<std::pair<std::string, double>> settings;  // of the optimizer, as given
  LoraConfig lora;                                       // rank 0: none
  TrainOptions() { lora.rank = 0; }
  PreferenceOptions preference;
  std::vector<std::string> trained;                // patterns; empty: all
  std::vector<std::string> no_decay;               // patterns
  std::vector<std::string> of_adapters, of_pairs;  // flags given that mean nothing without
  std::string init, adapter, out, save_dtype;
  bool no_dropout = false, from_scratch = false, merge = false, resume = false, dry_run = false,
       json = false;
};

void add_train_options(CLI::App& command, TrainOptions& options);
// After parsing: fills of_adapters and of_pairs.
void note_given(const CLI::App& command, TrainOptions& options);

}  // namespace plait
