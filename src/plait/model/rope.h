// Rotary positions as config.json describes them: the frequency of every pair, and how much the
// turned values grow. All scalings of Hugging Face's modeling_rope_utils, computed in double.
//
//   default    theta^(-2 i / head size)
//   linear     over `factor` (kaiokendev, 2023)
//   dynamic    a larger theta for longer sequences (NTK-aware; emozilla, 2023)
//   yarn       pairs that turn fast stay, slow ones go over `factor` (Peng et al., "YaRN", 2023)
//   llama3     the same idea with other bounds (Llama 3.1, 2024)
//   longrope   a factor for each pair (Ding et al., "LongRoPE", 2024)
//
// Where Hugging Face looks at the length of the batch in hand (dynamic, longrope), plait looks at
// the slot: what a model computes does not depend on the samples that happen to be in a batch.
#pragma once

#include <string>
#include <vector>

#include "plait/model/config.h"

namespace plait {

struct Rope {
  double theta = 10000;
  std::vector<double> frequencies;  // empty: those of theta
  double magnitude = 1;
  bool operator==(const Rope&) const = default;
};

// What the scalings need to know of the model.
struct RopeSizes {
  int64_t head_size = 0;      // even
  int64_t max_positions = 0;  // max_position_embeddings
  int64_t slot_tokens = 0;
  double sliding_theta = 0;  // default of a section for sliding_attention; 0: that of the others
};

// Reads `rope_scaling` or `rope_parameters`, and `rope_theta` beside them. The result has an entry
// for each layer type for which `rope_parameters` has a section, or one entry "" for all layers.
std::map<std::string, Rope> read_ropes(Config& config, const RopeSizes& sizes,
                                       double default_theta);

// " head_size=8 theta=10000": the attributes of the op `rope`.
std::string rope_attributes(const Rope& rope, int64_t head_size);

}  // namespace plait
