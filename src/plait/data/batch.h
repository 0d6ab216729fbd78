// What one step of training hands to a Session: how its samples lie, and the check of a batch.
//
//   const BatchLayout layout = batch_layout(model, plan.microbatches);
//   Batch batch = data.training_batch(layout, step);   // data.h
//   check_batch(batch, model);
//
// Tensors of a micro-batch, all [T]: tokens, positions, sequences, labels (i32) and weights; for
// preference pairs also `pairs` (i32). A slot is the unit of T that ranks never cut; a sample
// fills one slot.
#pragma once

#include "plait/exec/session.h"
#include "plait/model/model.h"

namespace plait {

// How the samples of a step lie: `microbatches` x `slots` of them, each in its own slot.
struct BatchLayout {
  int64_t microbatches = 1, slots = 1, slot_tokens = 0;
  Dtype dtype = Dtype::f32;  // of the weights
  int64_t samples() const { return microbatches * slots; }
  int64_t tokens() const { return samples() * slot_tokens; }
};
BatchLayout batch_layout(const Model& model, int64_t microbatches);

// Throws Error unless the batch fits the model: every tensor there with T elements, ids in range,
// weights finite, and every sequence one run of tokens inside one unit of T.
void check_batch(const Batch& batch, const Model& model);

}  // namespace plait
