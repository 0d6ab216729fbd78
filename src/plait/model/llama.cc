// Families that are Llama with small changes: each reads its config.json into a Decoder.
//   llama    Touvron et al., 2023; SmolLM is one          RMS norm, rotary positions, SwiGLU
//   mistral  Jiang et al., 2023                           a sliding window
//   qwen2    Yang et al., 2024                            biases of q, k and v; windows in some
//   layers qwen3    Yang et al., 2025                            norms on the heads of q and k
//   olmo2    OLMo et al., 2024                            norms behind attention and MLP, on q and
//   k smollm3  Bakouch et al., 2025                         layers without positions
#include "plait/model/decoder.h"

namespace plait {

namespace {

bool every_layer(int64_t, int64_t) { return true; }
bool from_layer(int64_t layer, int64_t first) { return layer >= first; }

// Layers that differ in their window and rotary positions.
void add_layers(Decoder& d, const std::map<std::string, Rope>& ropes,
                const std::vector<bool>& sliding, int64_t window) {
  for (const bool s : sliding) d.add_layer({s ? window : 0, rope_of(ropes, s), 0});
}

// Biases of q, k, v and o under one key.
void read_attention_bias(Config& c, Decoder& d) {
  d.qkv_bias = d.o_bias = c.boolean("attention_bias", false);
}

// `sliding_window`, where `use_sliding_window` says so.
int64_t switched_window(Config& c) {
  const bool use = c.boolean("use_sliding_window", false);
  const int64_t window = c.integer("sliding_window", 1, kMaxIds, 0);
  if (use && window == 0) fail("config.json: 'use_sliding_window' without a 'sliding_window'");
  return use ? window : 0;
}

// Qwen: the layers from `max_window_layers` on have the window.
void read_qwen_layers(Config& c, const BatchShape& batch, int64_t max_positions, Decoder& d) {
  const int64_t window = switched_window(c);
  const int64_t first = c.integer("max_window_layers", 0, kMaxIds, 28);
  const auto ropes = read_ropes(c, {d.head_size, max_positions, batch.slot_tokens}, 10000);
  add_layers(d, ropes, sliding_layers(c, d.layers, window != 0, from_layer, first), window);
}

}  // namespace

std::string llama_text(Config& config, const BatchShape& batch, Head head) {
  int64_t max_positions = 0;
  Decoder d = read_decoder(config, {}, head, &max_positions);
  read_attention_bias(config, d);
  d.mlp_bias = config.boolean("mlp_bias", false);
  config.only("sliding_window", {nullptr}, "model_type mistral has sliding windows");
  const auto ropes = read_ropes(config, {d.head_size, max_positions, batch.slot_tokens}, 10000);
  add_layers(d, ropes, sliding_layers(config, d.layers, false, every_layer, 0), 0);
  return decoder_text(d, batch, head);
}

std::string mistral_text(Config& config, const BatchShape& batch, Head head) {
  int64_t max_positions = 0;
  Decoder d = read_decoder(config, {.max_positions = 131072}, head, &max_positions);
  // Left out, Hugging Face's own default is in force; null means none.
  const int64_t window =
      config.is_null("sliding_window") ? 0 : config.integer("sliding_window", 1, kMaxIds, 4096);
  const auto ropes = read_ropes(config, {d.head_size, max_positions, batch.slot_tokens}, 10000);
  add_layers(d, ropes, sliding_layers(config, d.layers, window != 0, every_layer, 0), window);
  return decoder_text(d, batch, head);
}

std::string qwen2_text(Config& config, const BatchShape& batch, Head head) {
  int64_t max_positions = 0;
  Decoder d = read_decoder(config, {.max_positions = 32768}, head, &max_positions);
  d.qkv_bias = true;
  read_qwen_layers(config, batch, max_positions, d);
  return decoder_text(d, batch, head);
}

std::string qwen3_text(Config& config, const BatchShape& batch, Head head) {
  int64_t max_positions = 0;
  Decoder d =
      read_decoder(config, {.max_positions = 32768, .head_size = 128}, head, &max_positions);
  d.qk_norm = Decoder::QkNorm::head;
  read_attention_bias(config, d);
  read_qwen_layers(config, batch, max_positions, d);
  return decoder_text(d, batch, head);
}

std::string olmo2_text(Config& config, const BatchShape& batch, Head head) {
  int64_t max_positions = 0;
  Decoder d = read_decoder(config, {.eps = 1e-5}, head, &max_positions);
  d.norms_before = false;
  d.norms_behind = true;
  d.names.attention_out_norm = "post_attention_layernorm";
  d.names.mlp_out_norm = "post_feedforward_layernorm";
  d.qk_norm = Decoder::QkNorm::row;
  read_attention_bias(config, d);
  const auto ropes = read_ropes(config, {d.head_size, max_positions, batch.slot_tokens}, 10000);
  add_layers(d, ropes, sliding_layers(config, d.layers, false, every_layer, 0), 0);
  return decoder_text(d, batch, head);
}

// Every `no_rope_layer_interval`-th layer has no positions, or `no_rope_layers` says which: an
// entry 0 is one without. Only layers without positions may have the window.
std::string smollm3_text(Config& config, const BatchShape& batch, Head head) {
  int64_t max_positions = 0;
  Decoder d = read_decoder(config, {.max_positions = 32768, .tied = true}, head, &max_positions);
  read_attention_bias(config, d);
  d.mlp_bias = config.boolean("mlp_bias", false);
  const int64_t window = switched_window(config);
  config.integer("max_window_layers", 0, kMaxIds, 0);  // without effect in this family
  const int64_t interval = config.integer("no_rope_layer_interval", 1, kMaxIds, 4);
  std::vector<double> has_rope = config.numbers("no_rope_layers", 0, 1);
  if (has_rope.empty())
    for (int64_t l = 0; l < d.layers; ++l) has_rope.push_back((l + 1) % interval != 0 ? 1 : 0);
  if (static_cast<int64_t>(has_rope.size()) != d.layers)
    fail("config.json: 'no_rope_layers' has {} entries for {} layers", has_rope.size(), d.layers);
  const auto ropes = read_ropes(config, {d.head_size, max_positions, batch.slot_tokens}, 2000000);
  const bool typed = config.has("layer_types");
  const std::vector<bool> sliding = sliding_layers(config, d.layers, window != 0, every_layer, 0);
  for (size_t l = 0; l < has_rope.size(); ++l) {
    LayerKind kind;
    if (has_rope[l] != 0) kind.rope = rope_of(ropes, typed && sliding[l]);
    if (sliding[l] && (typed || has_rope[l] == 0)) kind.window = window;
    d.add_layer(kind);
  }
  return decoder_text(d, batch, head);
}

}  // namespace plait
