// A decoder-only transformer, described: what the families have in common. A family fills a
// Decoder from its config.json; decoder_text writes the model's text, with one block for each
// distinct kind of layer.
//
//   x ── norm ── q, k, v ── norm, rotate ── attention ── o ── norm ── + ── norm ── MLP ── norm ── +
//   └──────────────────────────────────────────────────────────────────┘└──────────────────────┘
//
// Any of the norms may be missing, and the MLP has a gate or not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plait/model/rope.h"

namespace plait {

// What may differ from layer to layer.
struct LayerKind {
  int64_t window = 0;        // tokens seen; 0: all
  std::optional<Rope> rope;  // none: no rotary positions
  double scale = 0;          // of the scores; 0: 1 / sqrt(head_size)
  bool operator==(const LayerKind&) const = default;
};

// Modules by their names in the files. A layer's stand behind its prefix.
struct DecoderNames {
  std::string embedding, positions, layer, final_norm, head;  // layer: "model.layers."
  std::string q, k, v, o, gate, up, down;
  std::string attention_norm, mlp_norm;          // before attention and MLP
  std::string attention_out_norm, mlp_out_norm;  // behind them
  std::string q_norm, k_norm;
  // GPT-2: weights are stored as [in, out], and q, k and v as one tensor of this module.
  bool transposed = false;
  std::string fused_qkv;
};
DecoderNames llama_names();

struct Decoder {
  int64_t vocabulary = 0, width = 0, feed_forward = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  int64_t positions = 0;  // learned ones; 0: none

  bool layer_norm = false;  // with weight and bias; else RMS norm
  double eps = 0;
  double norm_offset = 0;  // RMS norm times (offset + weight)
  bool norms_before = true, norms_behind = false;
  enum class QkNorm : uint8_t { none, head, row } qk_norm = QkNorm::none;

  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool gated = true;
  std::string activation = "silu";  // an op
  double embedding_scale = 1;
  double attention_cap = 0, logits_cap = 0;  // 0: none

  bool tied = false;
  double deviation = 0.02;            // of initial weights
  double out_deviation = 0.02;        // of those that lead back into the residual
  std::vector<LayerKind> kinds;       // distinct ones
  std::vector<size_t> kind_of_layer;  // index into kinds
  DecoderNames names = llama_names();

  void add_layer(const LayerKind& kind);  // the next layer; kinds that are equal are one block
};

std::string decoder_text(const Decoder& decoder, const BatchShape& batch, Head head);

// ---- reading config.json ----

// What a family takes for granted where its config.json says nothing.
struct DecoderDefaults {
  double theta = 10000;
  int64_t max_positions = 2048;
  double eps = 1e-6;
  int64_t head_size = 0;  // 0: hidden_size / num_attention_heads
  bool tied = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
};

// Sizes, norms' eps, activation, tying and dropout: keys that all families but GPT-2 share.
// `max_positions` gets max_position_embeddings.
Decoder read_decoder(Config& config, const DecoderDefaults& defaults, Head head,
                     int64_t* max_positions);

// The op for an activation's name at Hugging Face.
std::string activation_op(const std::string& key, const std::string& name);

// Dropout acts in training only, and is not supported there.
void refuse_dropout(Config& config, const std::string& key, Head head);

// Which layers look through the sliding window: `layer_types`, or what the family's own rule says.
std::vector<bool> sliding_layers(Config& config, int64_t layers, bool has_window,
                                 bool (*rule)(int64_t layer, int64_t parameter), int64_t parameter);

const Rope& rope_of(const std::map<std::string, Rope>& ropes, bool sliding);

}  // namespace plait
