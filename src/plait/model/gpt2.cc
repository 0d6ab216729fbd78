// GPT-2 (Radford et al., 2019; Hugging Face's GPT2LMHeadModel): learned positions, LayerNorm,
// biases, GELU. Its files store weights as [in, out] and q, k and v as one tensor.
#include <cmath>

#include "plait/base/text.h"
#include "plait/model/config.h"

namespace plait {

namespace {

struct Gpt2Sizes {
  int64_t vocabulary, positions, width, feed_forward, layers, heads;
  double eps, deviation;
};

Gpt2Sizes read(Config& c, const BatchShape& batch) {
  Gpt2Sizes s{};
  s.vocabulary = c.integer("vocab_size", 1, kMaxIds);
  s.positions = c.integer("n_positions", 1, kMaxIds);
  if (c.integer("n_ctx", 1, kMaxIds, s.positions) != s.positions)
    fail("config.json: n_ctx differs from n_positions {}; set both alike", s.positions);
  if (batch.slot_tokens > s.positions)
    fail("config.json: n_positions {} in slots of {} tokens; needs shorter slots", s.positions,
         batch.slot_tokens);
  s.width = c.integer("n_embd", 1, kMaxWidth);
  s.layers = c.integer("n_layer", 1, kMaxLayers);
  s.heads = c.integer("n_head", 1, kMaxHeads);
  if (s.width % s.heads != 0)
    fail("config.json: n_embd {} over {} heads; needs a multiple", s.width, s.heads);
  s.feed_forward = c.integer("n_inner", 1, kMaxWidth, 4 * s.width);
  s.eps = c.number("layer_norm_epsilon", 1e-30, 1, 1e-5);
  s.deviation = c.number("initializer_range", 0, 100, 0.02);
  c.only("activation_function", {"gelu_new"});
  c.only("tie_word_embeddings", {true}, "an untied head is not supported yet");
  c.only("scale_attn_weights", {true});
  c.only("scale_attn_by_inverse_layer_idx", {false});
  c.only("reorder_and_upcast_attn", {false});
  c.only("add_cross_attention", {false});
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"})
    c.only(key, {0}, "dropout is not supported, so set it to 0");
  return s;
}

constexpr const char* kBlocks = R"(
block embed (tokens i32[T], positions i32[T]) (wte float[V, D], wpe float[P, D]) {{
  token = embedding(wte, tokens)
  position = embedding(wpe, positions)
  x = add(token, position)
  return x
}}
block layer (x float[T, D], sequences i32[T])
    (ln_1_w float[D], ln_1_b float[D], q_w float[H, D], q_b float[H], k_w float[H, D],
     k_b float[H], v_w float[H, D], v_b float[H], proj_w float[D, H], proj_b float[D],
     ln_2_w float[D], ln_2_b float[D], fc_w float[F, D], fc_b float[F],
     down_w float[D, F], down_b float[D]) {{
  n = layer_norm(x, ln_1_w, ln_1_b) eps={eps}
  q_plain = matmul(n, q_w) trans_b=1
  q = add_bias(q_plain, q_b)
  k_plain = matmul(n, k_w) trans_b=1
  k = add_bias(k_plain, k_b)
  v_plain = matmul(n, v_w) trans_b=1
  v = add_bias(v_plain, v_b)
  o, lse = attention(q, k, v, sequences) head_size={head_size}
  proj_plain = matmul(o, proj_w) trans_b=1
  proj = add_bias(proj_plain, proj_b)
  middle = add(x, proj)
  m = layer_norm(middle, ln_2_w, ln_2_b) eps={eps}
  fc_plain = matmul(m, fc_w) trans_b=1
  fc = add_bias(fc_plain, fc_b)
  active = gelu(fc)
  down_plain = matmul(active, down_w) trans_b=1
  down = add_bias(down_plain, down_b)
  y = add(middle, down)
  return y
}}
)";

constexpr const char* kLossHead = R"(
block head (x float[T, D], labels i32[T], weights float[T])
    (ln_f_w float[D], ln_f_b float[D], wte float[V, D]) {{
  n = layer_norm(x, ln_f_w, ln_f_b) eps={eps}
  logits = matmul(n, wte) trans_b=1
  lse = row_lse(logits)
  picked = pick(logits, labels)
  nll = sub(lse, picked)
  loss = dot(weights, nll)
  return loss
}}
)";

constexpr const char* kLogitsHead = R"(
block head (x float[T, D]) (ln_f_w float[D], ln_f_b float[D], wte float[V, D]) {{
  n = layer_norm(x, ln_f_w, ln_f_b) eps={eps}
  logits = matmul(n, wte) trans_b=1
  return logits
}}
)";

// One of a layer's modules with weight and bias, in the order of the block's parameters.
struct Module {
  const char *name, *weight_dims, *bias_dims;
  const char* file;   // the module in the file, when it differs
  int part;           // which third of it
  bool norm, narrow;  // narrow: the way back to the residual, drawn smaller
};
constexpr Module kModules[] = {{"ln_1", "[D]", "[D]", nullptr, 0, true, false},
                               {"attn.q", "[H, D]", "[H]", "attn.c_attn", 0, false, false},
                               {"attn.k", "[H, D]", "[H]", "attn.c_attn", 1, false, false},
                               {"attn.v", "[H, D]", "[H]", "attn.c_attn", 2, false, false},
                               {"attn.c_proj", "[D, H]", "[D]", nullptr, 0, false, true},
                               {"ln_2", "[D]", "[D]", nullptr, 0, true, false},
                               {"mlp.c_fc", "[F, D]", "[F]", nullptr, 0, false, false},
                               {"mlp.c_proj", "[D, F]", "[D]", nullptr, 0, false, true}};

std::string layer_params(const Gpt2Sizes& s, int64_t layer) {
  const std::string prefix = fmt::format("transformer.h.{}.", layer);
  const double narrow = s.deviation / std::sqrt(2.0 * static_cast<double>(s.layers));
  std::string t;
  for (const Module& m : kModules) {
    std::string init = m.norm ? "ones" : "normal " + number_text(m.narrow ? narrow : s.deviation);
    std::string weight = m.norm ? "" : fmt::format(" file {}{}.weight", prefix, m.name);
    std::string bias;
    if (m.file != nullptr) {
      const std::string rows = fmt::format(" rows {} of {}", m.part * s.width, 3 * s.width);
      weight = fmt::format(" file {}{}.weight{}", prefix, m.file, rows);
      bias = fmt::format(" file {}{}.bias{}", prefix, m.file, rows);
    }
    if (!m.norm) weight += " transposed";
    t += fmt::format("param {}{}.weight {} {}{}\n", prefix, m.name, m.weight_dims, init, weight);
    t += fmt::format("param {}{}.bias {} zeros{}\n", prefix, m.name, m.bias_dims, bias);
  }
  return t;
}

}  // namespace

std::string gpt2_text(Config& config, const BatchShape& batch, Head head) {
  const Gpt2Sizes s = read(config, batch);
  // OpenAI's own files lack the prefix, and hold the causal mask of every layer.
  config.files = {"transformer.",
                  {"transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"}};
  const bool loss = head == Head::loss;
  std::string t;
  t += fmt::format("extent T = {} by {}\nextent D = {}\nextent H = {} by {}\n",
                   batch.slots * batch.slot_tokens, batch.slot_tokens, s.width, s.width,
                   s.width / s.heads);
  t += fmt::format("extent F = {}\nextent V = {}\nextent P = {}\n", s.feed_forward, s.vocabulary,
                   s.positions);
  t += "input tokens i32[T]\ninput positions i32[T]\ninput sequences i32[T]\n";
  if (loss) t += "input labels i32[T]\ninput weights float[T]\n";

  const std::string drawn = "normal " + number_text(s.deviation);
  t += fmt::format("param transformer.wte.weight [V, D] {}\n", drawn);
  t += fmt::format("param transformer.wpe.weight [P, D] {}\n", drawn);
  for (int64_t l = 0; l < s.layers; ++l) t += layer_params(s, l);
  t += "param transformer.ln_f.weight [D] ones\nparam transformer.ln_f.bias [D] zeros\n";

  const std::string eps = number_text(s.eps);
  t += fmt::format(kBlocks, fmt::arg("eps", eps), fmt::arg("head_size", s.width / s.heads));
  t += fmt::format(fmt::runtime(loss ? kLossHead : kLogitsHead), fmt::arg("eps", eps));

  t += "h0 = embed (tokens, positions) (transformer.wte.weight, transformer.wpe.weight) as embed\n";
  for (int64_t l = 0; l < s.layers; ++l) {
    std::string params;
    for (const Module& m : kModules)
      params += fmt::format("{0}transformer.h.{1}.{2}.weight, transformer.h.{1}.{2}.bias",
                            params.empty() ? "" : ", ", l, m.name);
    t += fmt::format("h{} = layer (h{}, sequences) ({}) as layers.{}\n", l + 1, l, params, l);
  }
  t += fmt::format(
      "{0} = head (h{1}{2}) "
      "(transformer.ln_f.weight, transformer.ln_f.bias, transformer.wte.weight) as head\n{0} {0}\n",
      loss ? "loss" : "logits", s.layers, loss ? ", labels, weights" : "");
  return t;
}

}  // namespace plait
