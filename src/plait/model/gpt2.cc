// GPT-2 (Radford et al., 2019; Hugging Face's GPT2LMHeadModel): learned positions, layer norms,
// biases, an MLP without a gate. Its files store weights as [in, out] and q, k and v as one tensor.
#include <cmath>

#include "plait/model/decoder.h"

namespace plait {

namespace {

DecoderNames gpt2_names() {
  DecoderNames n;
  n.embedding = "transformer.wte";
  n.positions = "transformer.wpe";
  n.layer = "transformer.h.";
  n.final_norm = "transformer.ln_f";
  n.head = "lm_head";
  n.q = "attn.q";
  n.k = "attn.k";
  n.v = "attn.v";
  n.o = "attn.c_proj";
  n.up = "mlp.c_fc";
  n.down = "mlp.c_proj";
  n.attention_norm = "ln_1";
  n.mlp_norm = "ln_2";
  n.transposed = true;
  n.fused_qkv = "attn.c_attn";
  return n;
}

void read_sizes(Config& c, const BatchShape& batch, Decoder& d) {
  d.vocabulary = c.integer("vocab_size", 1, kMaxIds);
  d.positions = c.integer("n_positions", 1, kMaxIds);
  if (c.integer("n_ctx", 1, kMaxIds, d.positions) != d.positions)
    fail("config.json: n_ctx differs from n_positions {}; set both alike", d.positions);
  if (batch.slot_tokens > d.positions)
    fail("config.json: n_positions {} in slots of {} tokens; needs shorter slots", d.positions,
         batch.slot_tokens);
  d.width = c.integer("n_embd", 1, kMaxWidth);
  d.layers = c.integer("n_layer", 1, kMaxLayers);
  d.heads = d.kv_heads = c.integer("n_head", 1, kMaxHeads);
  if (d.width % d.heads != 0)
    fail("config.json: n_embd {} over {} heads; needs a multiple", d.width, d.heads);
  d.head_size = d.width / d.heads;
  d.feed_forward = c.integer("n_inner", 1, kMaxWidth, 4 * d.width);
}

}  // namespace

std::string gpt2_text(Config& config, const BatchShape& batch, Head head) {
  Config& c = config;
  Decoder d;
  read_sizes(c, batch, d);
  d.names = gpt2_names();
  // OpenAI's own files lack the prefix, and hold the causal mask of every layer.
  config.files = {"transformer.",
                  {"transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"}};
  d.layer_norm = true;
  d.eps = c.number("layer_norm_epsilon", 1e-30, 1, 1e-5);
  d.qkv_bias = d.o_bias = d.mlp_bias = true;
  d.gated = false;
  d.activation = activation_op("activation_function", c.text("activation_function", "gelu_new"));
  d.tied = c.boolean("tie_word_embeddings", true);
  d.deviation = c.number("initializer_range", 0, 100, 0.02);
  d.out_deviation = d.deviation / std::sqrt(2.0 * static_cast<double>(d.layers));
  // Changes where products are rounded, not what they are.
  c.boolean("reorder_and_upcast_attn", false);
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) refuse_dropout(c, key, head);
  const bool scaled = c.boolean("scale_attn_weights", true);
  const bool by_layer = c.boolean("scale_attn_by_inverse_layer_idx", false);
  for (int64_t l = 0; l < d.layers; ++l) {
    LayerKind kind;
    if (!scaled || by_layer) {
      kind.scale = scaled ? 1 / std::sqrt(static_cast<double>(d.head_size)) : 1;
      if (by_layer) kind.scale /= static_cast<double>(l + 1);
    }
    d.add_layer(kind);
  }
  return decoder_text(d, batch, head);
}

}  // namespace plait
