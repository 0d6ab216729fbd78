// lower: model + plan -> one program per rank.
//
// Blocks are differentiated, partitioned once per distinct shape and placement, and strung along
// the schedule; the update is a graph per pipeline rank, partitioned like the rest. What comes
// out is not trusted: verify() proves it before it runs.
#pragma once

#include <string>
#include <vector>

#include "plait/model/model.h"
#include "plait/optim/optimizer.h"
#include "plait/plan/partition.h"
#include "plait/program/program.h"
#include "plait/schedule/schedule.h"

namespace plait {

struct LowerOptions {
  bool train = true;  // false: forward only, for evaluation and inference
  Optimizer optimizer;
  int threads = 1;              // compute threads of each rank
  bool fuse = true;             // let fused ops (plan/fuse.h) do rows of ops at once
  bool keep_gradients = false;  // states "grad/NAME" hold the reduced gradients of the last step
};

// Compute threads for each of so many ranks on this machine: the cores shared out, at least one.
int share_of_cores(int ranks);

// States of a program, by name: "param/NAME"; what the optimizer keeps ("m/NAME" and "v/NAME" with
// AdamW); "loss" and "grad_sum_squares" (scalars); "logits" and the model's results, by name, where
// it has them; results that are scalars are summed over micro-batches, the others need one
// micro-batch. When one of the two scalars is not finite, the step has left parameters and the
// optimizer's states as they were, in every bit and on every rank.
struct Lowered {
  Programs programs;
  Schedule schedule;
  std::vector<PartGraph> parts;     // distinct partitioned blocks
  std::vector<size_t> part_of_use;  // index into parts, per use of the model
  std::vector<int> stage_of_use;    // pipeline rank, per use of the model
};

// Throws Error when the plan cannot work, naming the rule and the numbers.
Lowered lower(const Model& model, const Plan& plan, const LowerOptions& options = {});

// Adds alloc and free actions and arena offsets to a program whose actions only compute and
// communicate; copies operands that are taken but still read later.
void place_in_arena(Program& program);

}  // namespace plait
