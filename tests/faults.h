// The tiny models and the batch on which the faults that users of other systems reported are
// looked for (faults_test.cc), and the truth that every layout of them is held against.
#pragma once

#include "harness.h"

namespace plait {

// config.json of: 4 layers, width 32, 4 query and 2 key/value heads of 8, feed-forward width 88,
// vocabulary 67, untied.
std::string d4();
std::string d4_tied();
std::string d4_one_kv_head();
std::string d4_qk_norm();

// How much a token weighs: 1 over the tokens of the step that count, or 1 over those of its sample
// and over the samples that have any.
enum class Mean : uint8_t { tokens, samples };

// 8 samples of at most 24 tokens, with 24, 3, 17, 24, 9, 1, 20, 24 real ones, the rest padding; a
// fifth of the labels is masked, and all of sample 6. Dealt to micro-batches in order.
struct FaultBatch {
  int64_t microbatches = 1;
  Mean mean = Mean::tokens;
  std::vector<int64_t> masked_samples = {6};
};
Batch fault_batch(const FaultBatch& options);

// Adapters of rank 4 on q, k, v, o, up and down; `targets` other than these if given.
LoraConfig fault_lora(const std::vector<std::string>& targets = {});

// What one rank computes in one micro-batch, for a model and batch dealt to micro-batches.
Truth fault_truth(const std::string& config, const FaultBatch& options = {},
                  const std::optional<LoraConfig>& lora = {});

// Plan of the axes pp, dp, tp, in this order from the outermost; the splits are TOML lines.
Plan fault_plan(int pp, int dp, int tp, int64_t microbatches = 1,
                const std::string& splits = "T='dp'\nH='tp'\nG='tp'\nF='tp'\nV='tp'\n");

// Runs one step of the layout; empty, or what differs from the truth at 1e-10 (E1), or whether a
// replica differs in any bit (E0), or the refusal.
std::string held_against(const Truth& truth, const Plan& plan,
                         const LowerOptions& options = harness_options());

}  // namespace plait
