// The Llama family (Touvron et al., "LLaMA", 2023; Hugging Face's LlamaForCausalLM): rotary
// positions, RMSNorm, grouped key/value heads, SwiGLU.
#include "plait/base/text.h"
#include "plait/model/config.h"

namespace plait {

namespace {

struct LlamaSizes {
  int64_t vocabulary, width, feed_forward, layers, heads, kv_heads, head_size;
  double eps, theta, deviation;
  bool tied;
};

LlamaSizes read(Config& c) {
  LlamaSizes s{};
  s.vocabulary = c.integer("vocab_size", 1, kMaxIds);
  s.width = c.integer("hidden_size", 1, kMaxWidth);
  s.feed_forward = c.integer("intermediate_size", 1, kMaxWidth);
  s.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  s.heads = c.integer("num_attention_heads", 1, kMaxHeads);
  s.kv_heads = c.integer("num_key_value_heads", 1, kMaxHeads, s.heads);
  if (s.heads % s.kv_heads != 0)
    fail("config.json: {} attention heads over {} key/value heads; needs a multiple", s.heads,
         s.kv_heads);
  const int64_t head_dim = c.integer("head_dim", 1, kMaxWidth, 0);
  if (head_dim == 0 && s.width % s.heads != 0)
    fail("config.json: hidden_size {} over {} attention heads; needs a multiple, or head_dim",
         s.width, s.heads);
  s.head_size = head_dim != 0 ? head_dim : s.width / s.heads;
  if (s.head_size % 2 != 0)
    fail("config.json: head size {}; rotary positions need an even one", s.head_size);
  c.integer("max_position_embeddings", 1, kMaxIds, 2048);  // rotary positions have no table
  s.eps = c.number("rms_norm_eps", 1e-30, 1, 1e-6);
  s.theta = c.number("rope_theta", 1, 1e30, 10000);
  s.deviation = c.number("initializer_range", 0, 100, 0.02);
  s.tied = c.boolean("tie_word_embeddings", false);
  c.only("rope_scaling", {nullptr}, "scaled rotary positions are not supported yet");
  c.only("sliding_window", {nullptr}, "sliding windows are not supported yet");
  c.only("hidden_act", {"silu"});
  c.only("attention_bias", {false});
  c.only("mlp_bias", {false});
  c.only("pretraining_tp", {1}, "set it to 1");
  c.only("attention_dropout", {0}, "dropout is not supported, so set it to 0");
  return s;
}

constexpr const char* kBlocks = R"(
block embed (tokens i32[T]) (table float[V, D]) {{
  x = embedding(table, tokens)
  return x
}}
block layer (x float[T, D], positions i32[T], sequences i32[T])
    (input_layernorm float[D], q_proj float[H, D], k_proj float[G, D], v_proj float[G, D],
     o_proj float[D, H], post_attention_layernorm float[D],
     gate_proj float[F, D], up_proj float[F, D], down_proj float[D, F]) {{
  n = rms_norm(x, input_layernorm) eps={eps}
  q_plain = matmul(n, q_proj) trans_b=1
  k_plain = matmul(n, k_proj) trans_b=1
  v = matmul(n, v_proj) trans_b=1
  q = rope(q_plain, positions) head_size={head_size} theta={theta}
  k = rope(k_plain, positions) head_size={head_size} theta={theta}
  o, lse = attention(q, k, v, sequences) head_size={head_size}
  attended = matmul(o, o_proj) trans_b=1
  middle = add(x, attended)
  m = rms_norm(middle, post_attention_layernorm) eps={eps}
  gate = matmul(m, gate_proj) trans_b=1
  up = matmul(m, up_proj) trans_b=1
  active = silu(gate)
  gated = mul(active, up)
  down = matmul(gated, down_proj) trans_b=1
  y = add(middle, down)
  return y
}}
)";

constexpr const char* kLossHead = R"(
block head (x float[T, D], labels i32[T], weights float[T]) (norm float[D], lm_head float[V, D]) {{
  n = rms_norm(x, norm) eps={eps}
  logits = matmul(n, lm_head) trans_b=1
  lse = row_lse(logits)
  picked = pick(logits, labels)
  nll = sub(lse, picked)
  loss = dot(weights, nll)
  return loss
}}
)";

constexpr const char* kLogitsHead = R"(
block head (x float[T, D]) (norm float[D], lm_head float[V, D]) {{
  n = rms_norm(x, norm) eps={eps}
  logits = matmul(n, lm_head) trans_b=1
  return logits
}}
)";

struct LayerParam {
  const char *name, *dims, *init;  // init: the word, or nullptr for the config's deviation
};
constexpr LayerParam kLayerParams[] = {
    {"input_layernorm", "[D]", "ones"},      {"self_attn.q_proj", "[H, D]", nullptr},
    {"self_attn.k_proj", "[G, D]", nullptr}, {"self_attn.v_proj", "[G, D]", nullptr},
    {"self_attn.o_proj", "[D, H]", nullptr}, {"post_attention_layernorm", "[D]", "ones"},
    {"mlp.gate_proj", "[F, D]", nullptr},    {"mlp.up_proj", "[F, D]", nullptr},
    {"mlp.down_proj", "[D, F]", nullptr}};

}  // namespace

std::string llama_text(Config& config, const BatchShape& batch, Head head) {
  // Older files hold the rotary frequencies, which config.json states.
  config.files.ignored = {"model.layers.*.self_attn.rotary_emb.inv_freq"};
  const LlamaSizes s = read(config);
  const bool loss = head == Head::loss;
  std::string t;
  t += fmt::format("extent T = {} by {}\nextent D = {}\nextent H = {} by {}\n",
                   batch.slots * batch.slot_tokens, batch.slot_tokens, s.width,
                   s.heads * s.head_size, s.head_size);
  t += fmt::format("extent G = {} by {}\nextent F = {}\nextent V = {}\n", s.kv_heads * s.head_size,
                   s.head_size, s.feed_forward, s.vocabulary);
  t += "input tokens i32[T]\ninput positions i32[T]\ninput sequences i32[T]\n";
  if (loss) t += "input labels i32[T]\ninput weights float[T]\n";

  const std::string drawn = "normal " + number_text(s.deviation);
  const auto layer_param = [](int64_t layer, const char* name) {
    return fmt::format("model.layers.{}.{}.weight", layer, name);
  };
  t += fmt::format("param model.embed_tokens.weight [V, D] {}\n", drawn);
  for (int64_t l = 0; l < s.layers; ++l)
    for (const LayerParam& p : kLayerParams)
      t += fmt::format("param {} {} {}\n", layer_param(l, p.name), p.dims,
                       p.init != nullptr ? p.init : drawn);
  t += "param model.norm.weight [D] ones\n";
  if (!s.tied) t += fmt::format("param lm_head.weight [V, D] {}\n", drawn);

  const std::string eps = number_text(s.eps);
  t += fmt::format(kBlocks, fmt::arg("eps", eps), fmt::arg("head_size", s.head_size),
                   fmt::arg("theta", number_text(s.theta)));
  t += fmt::format(fmt::runtime(loss ? kLossHead : kLogitsHead), fmt::arg("eps", eps));

  t += "h0 = embed (tokens) (model.embed_tokens.weight) as embed\n";
  for (int64_t l = 0; l < s.layers; ++l) {
    std::string params;
    for (const LayerParam& p : kLayerParams)
      params += (params.empty() ? "" : ", ") + layer_param(l, p.name);
    t += fmt::format("h{} = layer (h{}, positions, sequences) ({}) as layers.{}\n", l + 1, l,
                     params, l);
  }
  t += fmt::format("{0} = head (h{1}{2}) (model.norm.weight, {3}) as head\n{0} {0}\n",
                   loss ? "loss" : "logits", s.layers, loss ? ", labels, weights" : "",
                   s.tied ? "model.embed_tokens.weight" : "lm_head.weight");
  return t;
}

}  // namespace plait
