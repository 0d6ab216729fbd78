// Fusion: rows of ops in a partitioned block that a fused op does at once are replaced by it.
//
// The patterns are the expansions of the fused ops (ir/fused.h), tried in the order of the op table
// (ops/table.cc), each wherever it fits: no communication inside, and nothing inside that is read
// elsewhere. So what a program means, its placements and its legality stay as they were, and a plan
// that puts communication between two ops keeps them apart.
//
// A row may reach from the forward into the backward pass: linear_nll_grad makes loss and gradient
// at once. It then runs in B, and `late_outputs` says which results of the block may be made there.
#pragma once

#include "plait/plan/partition.h"

namespace plait {

PartGraph fuse(PartGraph part, const std::vector<bool>& late_outputs);

}  // namespace plait
