// What a model says of every token of a text, for comparison with other programs.
#pragma once

#include <string>

#include "plait/cli/common.h"
#include "plait/data/data.h"

namespace plait {

// Writes a safetensors file of the first `samples` validation samples [S, slot_tokens]:
//   tokens, positions, sequences, labels i32, as they go into the model: a sequence sees itself
//   learn      i32, 1 where the label counts
//   logits     [S, slot_tokens, V], in the model's element type
// `model` has logits; runs under the plan with one micro-batch, forward only.
void write_logits(const std::string& path, const Model& model, Plan plan, int ranks,
                  const HostTensors& parameters, const Data& data, int64_t samples);

}  // namespace plait
