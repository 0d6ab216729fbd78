// The Gemma family (Gemma Team, 2024 and 2025; Hugging Face's GemmaForCausalLM and its followers):
// embeddings times sqrt(width), RMS norms times (1 + weight), a GELU gate, tied embeddings.
//   gemma2  norms before and behind, soft caps, every other layer with a window
//   gemma3  norms on the heads of q and k, five layers of six with a window and positions of their
//   own
//
// Hugging Face rounds sqrt(width) to the type of the weights, and computes norms in f32; here all
// is computed in the model's own element type.
#include <cmath>

#include "plait/model/decoder.h"

namespace plait {

namespace {

constexpr double kNoCap = 0;

Decoder read_gemma(Config& c, const DecoderDefaults& defaults, Head head, int64_t* max_positions) {
  Decoder d = read_decoder(c, defaults, head, max_positions);
  d.norm_offset = 1;
  d.embedding_scale = std::sqrt(static_cast<double>(d.width));
  d.qkv_bias = d.o_bias = c.boolean("attention_bias", false);
  return d;
}

double read_cap(Config& c, const char* key, double fallback) {
  return c.is_null(key) ? kNoCap : c.number(key, 1e-6, 1e12, fallback);
}

void norms_on_both_sides(Decoder& d) {
  d.norms_behind = true;
  d.names.attention_out_norm = "post_attention_layernorm";
  d.names.mlp_norm = "pre_feedforward_layernorm";
  d.names.mlp_out_norm = "post_feedforward_layernorm";
}

// What Gemma 2 and 3 have in common.
Decoder read_gemma_2_and_3(Config& c, DecoderDefaults defaults, Head head, double logits_cap,
                           int64_t* max_positions) {
  defaults.activation_key = "hidden_activation";
  // Ignored at Hugging Face in favour of hidden_activation.
  c.text("hidden_act", "");
  Decoder d = read_gemma(c, defaults, head, max_positions);
  norms_on_both_sides(d);
  d.logits_cap = read_cap(c, "final_logit_softcapping", logits_cap);
  return d;
}

double read_scale(Config& c) {
  return 1 / std::sqrt(c.number("query_pre_attn_scalar", 1e-6, 1e12, 256));
}

int64_t read_window(Config& c) {
  return c.is_null("sliding_window") ? 0 : c.integer("sliding_window", 1, kMaxIds, 4096);
}

// transformers writes the pattern with an underscore, beside the layer_types that say it already,
// and reads it without one.
int64_t read_pattern(Config& c) {
  const int64_t pattern = c.integer("sliding_window_pattern", 1, kMaxIds, 6);
  const int64_t written = c.integer("_sliding_window_pattern", 1, kMaxIds, pattern);
  if (written != pattern && !c.has("layer_types"))
    fail(
        "config.json: '_sliding_window_pattern' is {} without 'layer_types', and transformers "
        "takes "
        "{} then; name the pattern 'sliding_window_pattern', or give 'layer_types'",
        written, pattern);
  return pattern;
}

bool every_other(int64_t layer, int64_t) { return layer % 2 == 0; }
bool all_but_each(int64_t layer, int64_t pattern) { return (layer + 1) % pattern != 0; }

}  // namespace

std::string gemma_text(Config& config, const BatchShape& batch, Head head) {
  int64_t max_positions = 0;
  Decoder d = read_gemma(
      config,
      {.max_positions = 8192, .head_size = 256, .tied = true, .activation = "gelu_pytorch_tanh"},
      head, &max_positions);
  // The first files say "gelu" and mean its tanh approximation; hidden_activation came later.
  if (config.text("hidden_act", "") == "gelu")
    d.activation = activation_op("", "gelu_pytorch_tanh");
  const std::string later = config.text("hidden_activation", "");
  if (!later.empty() && activation_op("hidden_activation", later) != d.activation)
    fail("config.json: 'hidden_act' and 'hidden_activation' (\"{}\") differ; needs one", later);
  const auto ropes = read_ropes(config, {d.head_size, max_positions, batch.slot_tokens}, 10000);
  for (int64_t l = 0; l < d.layers; ++l) d.add_layer({0, rope_of(ropes, false), 0});
  return decoder_text(d, batch, head);
}

std::string gemma2_text(Config& config, const BatchShape& batch, Head head) {
  int64_t max_positions = 0;
  Decoder d = read_gemma_2_and_3(
      config,
      {.max_positions = 8192, .head_size = 256, .tied = true, .activation = "gelu_pytorch_tanh"},
      head, 30, &max_positions);
  d.attention_cap = read_cap(config, "attn_logit_softcapping", 50);
  const double scale = read_scale(config);
  const int64_t window = read_window(config);
  const auto ropes = read_ropes(config, {d.head_size, max_positions, batch.slot_tokens}, 10000);
  for (const bool s : sliding_layers(config, d.layers, window != 0, every_other, 0))
    d.add_layer({s ? window : 0, rope_of(ropes, s), scale});
  return decoder_text(d, batch, head);
}

std::string gemma3_text(Config& config, const BatchShape& batch, Head head) {
  int64_t max_positions = 0;
  Decoder d = read_gemma_2_and_3(
      config,
      {.max_positions = 131072, .head_size = 256, .tied = true, .activation = "gelu_pytorch_tanh"},
      head, kNoCap, &max_positions);
  config.only(
      "attn_logit_softcapping", {nullptr},
      "Gemma 3 caps no attention scores: transformers reads the key and ignores it; remove it");
  d.qk_norm = Decoder::QkNorm::head;
  const double scale = read_scale(config);
  const int64_t window = read_window(config);
  const int64_t pattern = read_pattern(config);
  const double local = config.number("rope_local_base_freq", 1, 1e30, 10000);
  RopeSizes sizes{d.head_size, max_positions, batch.slot_tokens};
  sizes.sliding_theta = local;
  std::map<std::string, Rope> ropes = read_ropes(config, sizes, 1000000);
  // One set of parameters, `rope_scaling`, is for the layers that see everything.
  if (config.has("rope_parameters") && ropes.contains(""))
    fail("config.json: 'rope_parameters' needs sections full_attention and sliding_attention");
  if (ropes.contains("")) ropes["full_attention"] = ropes.at("");
  ropes.erase("");
  ropes.try_emplace("full_attention", Rope{1000000, {}, 1});
  ropes.try_emplace("sliding_attention", Rope{local, {}, 1});
  for (const bool s : sliding_layers(config, d.layers, window != 0, all_but_each, pattern))
    d.add_layer({s ? window : 0, rope_of(ropes, s), scale});
  return decoder_text(d, batch, head);
}

}  // namespace plait
