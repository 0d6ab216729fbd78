// Reading config.json into a Decoder (declared in decoder.h).
#include <algorithm>

#include "plait/model/decoder.h"

namespace plait {

namespace {

struct Activation {
  std::string_view name, op;
};
// Hugging Face's names of what plait has an op for.
constexpr Activation kActivations[] = {{"silu", "silu"},
                                       {"swish", "silu"},
                                       {"gelu", "gelu_erf"},
                                       {"gelu_python", "gelu_erf"},
                                       {"gelu_new", "gelu"},
                                       {"gelu_pytorch_tanh", "gelu"},
                                       {"gelu_fast", "gelu"},
                                       {"gelu_accurate", "gelu"},
                                       {"quick_gelu", "gelu_quick"},
                                       {"relu", "relu"},
                                       {"relu2", "squared_relu"}};

}  // namespace

std::string activation_op(const std::string& key, const std::string& name) {
  std::vector<std::string_view> known;
  for (const Activation& a : kActivations) {
    if (a.name == name) return std::string(a.op);
    known.push_back(a.name);
  }
  fail("config.json: '{}' is \"{}\"; known are {}", key, name, fmt::join(known, ", "));
}

void refuse_dropout(Config& config, const std::string& key, Head head) {
  const bool trains = head == Head::loss || head == Head::preference;
  if (trains && config.dropout == Dropout::refused_in_training)
    config.only(key, {0},
                "there is no dropout in training here; to train without it say --no-dropout, or "
                "set it to 0 in config.json");
  else
    config.number(key, 0, 1, 0);
}

Decoder read_decoder(Config& c, const DecoderDefaults& defaults, Head head,
                     int64_t* max_positions) {
  // Older files hold the rotary frequencies, which config.json states.
  c.files.ignored = {"model.layers.*.self_attn.rotary_emb.inv_freq"};
  Decoder d;
  d.vocabulary = c.integer("vocab_size", 1, kMaxIds);
  d.width = c.integer("hidden_size", 1, kMaxWidth);
  d.feed_forward = c.integer("intermediate_size", 1, kMaxWidth);
  d.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  d.heads = c.integer("num_attention_heads", 1, kMaxHeads);
  d.kv_heads = c.integer("num_key_value_heads", 1, kMaxHeads, d.heads);
  if (d.heads % d.kv_heads != 0)
    fail("config.json: {} attention heads over {} key/value heads; needs a multiple", d.heads,
         d.kv_heads);
  d.head_size = c.integer("head_dim", 1, kMaxWidth, defaults.head_size);
  if (d.head_size == 0 && d.width % d.heads != 0)
    fail("config.json: hidden_size {} over {} attention heads; needs a multiple, or head_dim",
         d.width, d.heads);
  if (d.head_size == 0) d.head_size = d.width / d.heads;
  *max_positions = c.integer("max_position_embeddings", 1, kMaxIds, defaults.max_positions);
  d.eps = c.number("rms_norm_eps", 1e-30, 1, defaults.eps);
  d.deviation = d.out_deviation = c.number("initializer_range", 0, 100, 0.02);
  d.tied = c.boolean("tie_word_embeddings", defaults.tied);
  d.activation =
      activation_op(defaults.activation_key, c.text(defaults.activation_key, defaults.activation));
  refuse_dropout(c, "attention_dropout", head);
  c.only("use_bidirectional_attention", {false}, "attention is causal here");
  c.only("rope_interleaved", {false});
  c.only("use_mrope", {false});
  // Tables of rotary positions, which old files hold.
  c.files.ignored = {"model.layers.*.self_attn.rotary_emb.inv_freq"};
  return d;
}

std::vector<bool> sliding_layers(Config& config, int64_t layers, bool has_window,
                                 bool (*rule)(int64_t layer, int64_t parameter),
                                 int64_t parameter) {
  std::vector<bool> sliding;
  const std::vector<std::string> types = config.texts("layer_types");
  if (types.empty()) {
    for (int64_t l = 0; l < layers; ++l) sliding.push_back(has_window && rule(l, parameter));
    return sliding;
  }
  if (static_cast<int64_t>(types.size()) != layers)
    fail("config.json: 'layer_types' has {} entries for {} layers", types.size(), layers);
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      fail("config.json: 'layer_types' holds \"{}\", expected full_attention or sliding_attention",
           type);
    sliding.push_back(type == "sliding_attention");
    if (sliding.back() && !has_window)
      fail("config.json: 'layer_types' holds sliding_attention, but there is no sliding_window");
  }
  return sliding;
}

const Rope& rope_of(const std::map<std::string, Rope>& ropes, bool sliding) {
  const char* type = sliding ? "sliding_attention" : "full_attention";
  auto at = ropes.find(type);
  if (at == ropes.end()) at = ropes.find("");
  if (at == ropes.end()) fail("config.json: 'rope_parameters' has no section '{}'", type);
  return at->second;
}

}  // namespace plait
