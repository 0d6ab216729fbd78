#include "random_config.h"

#include <nlohmann/json.hpp>

namespace plait {

namespace {

using nlohmann::json;

json layer_sizes(Draw& d, ConfigSizes& s) {
  s.layers = d.between(1, 4);
  s.heads = d.pick<int64_t>({4, 6, 8});
  std::vector<int64_t> divisors;
  for (int64_t n = 1; n <= s.heads; ++n)
    if (s.heads % n == 0) divisors.push_back(n);
  s.kv_heads = d.pick(divisors);
  return {{"vocab_size", 67},
          {"hidden_size", 32},
          {"num_hidden_layers", s.layers},
          {"num_attention_heads", s.heads},
          {"num_key_value_heads", s.kv_heads},
          {"head_dim", d.pick<int64_t>({8, 8, 4})},
          {"intermediate_size", d.pick<int64_t>({88, 40, 37})},
          {"rms_norm_eps", 1e-5},
          {"max_position_embeddings", 64},
          {"tie_word_embeddings", d.chance(40)}};
}

// One of the scalings that every rotary family reads; half of the time none.
void add_rope(Draw& d, int64_t tokens, json& c) {
  c["rope_theta"] = d.pick<double>({10000, 500});
  if (d.chance(50)) return;
  json scaling;
  const std::string kind = d.pick<std::string>({"linear", "dynamic", "yarn", "llama3", "longrope"});
  scaling["rope_type"] = kind;
  if (kind != "longrope") scaling["factor"] = d.pick<double>({2, 4, 2.5});
  if (kind == "dynamic") c["max_position_embeddings"] = tokens / 2;
  if (kind == "yarn" || kind == "longrope" || kind == "llama3")
    scaling["original_max_position_embeddings"] = d.chance(50) ? tokens / 2 : tokens * 2;
  if (kind == "yarn") {
    scaling["beta_fast"] = 2;
    scaling["beta_slow"] = 0.5;
  }
  if (kind == "llama3") {
    scaling["low_freq_factor"] = 1;
    scaling["high_freq_factor"] = 4;
  }
  if (kind == "longrope") {
    const auto half = c["head_dim"].get<size_t>() / 2;
    std::vector<double> short_factor, long_factor;
    for (size_t i = 0; i < half; ++i) {
      short_factor.push_back(1 + 0.1 * static_cast<double>(i));
      long_factor.push_back(1.5 + 0.5 * static_cast<double>(i));
    }
    scaling["short_factor"] = short_factor;
    scaling["long_factor"] = long_factor;
  }
  c["rope_scaling"] = scaling;
}

int64_t window(Draw& d, int64_t tokens) { return d.between(2, tokens - 1); }

json gpt2(Draw& d, int64_t, ConfigSizes& s) {
  s.layers = d.between(1, 4);
  s.heads = s.kv_heads = 4;
  json c = {{"model_type", "gpt2"}, {"vocab_size", 67},
            {"n_positions", 64},    {"n_embd", 32},
            {"n_layer", s.layers},  {"n_head", 4},
            {"resid_pdrop", 0},     {"embd_pdrop", 0},
            {"attn_pdrop", 0},      {"layer_norm_epsilon", 1e-5}};
  c["activation_function"] = d.pick<std::string>({"gelu_new", "gelu_new", "gelu", "relu"});
  if (d.chance(30)) c["n_inner"] = d.pick<int64_t>({37, 64});
  if (d.chance(30)) c["scale_attn_by_inverse_layer_idx"] = true;
  if (d.chance(30)) c["tie_word_embeddings"] = false;
  return c;
}

json llama(Draw& d, int64_t tokens, ConfigSizes& s) {
  json c = layer_sizes(d, s);
  c["model_type"] = "llama";
  c["hidden_act"] = d.chance(80) ? "silu" : "gelu_pytorch_tanh";
  if (d.chance(25)) c["attention_bias"] = true;
  if (d.chance(25)) c["mlp_bias"] = true;
  add_rope(d, tokens, c);
  return c;
}

json mistral(Draw& d, int64_t tokens, ConfigSizes& s) {
  json c = layer_sizes(d, s);
  c["model_type"] = "mistral";
  if (d.chance(70)) c["sliding_window"] = window(d, tokens);
  add_rope(d, tokens, c);
  return c;
}

json qwen(Draw& d, int64_t tokens, ConfigSizes& s) {
  json c = layer_sizes(d, s);
  const bool third = d.chance(50);
  c["model_type"] = third ? "qwen3" : "qwen2";
  if (third)
    c["attention_bias"] = d.chance(30);
  else
    c.erase("head_dim");
  if (!third) {
    c["hidden_size"] = 8 * s.heads;
    c["head_dim"] = 8;  // for the scaling's factors; removed below
  }
  if (d.chance(50)) {
    c["use_sliding_window"] = true;
    c["sliding_window"] = window(d, tokens);
    c["max_window_layers"] = d.between(0, s.layers);
  }
  add_rope(d, tokens, c);
  if (!third) c.erase("head_dim");
  return c;
}

json gemma(Draw& d, int64_t, ConfigSizes& s) {
  json c = layer_sizes(d, s);
  c["model_type"] = "gemma";
  c["tie_word_embeddings"] = true;
  c["hidden_activation"] = "gelu_pytorch_tanh";
  return c;
}

json gemma2(Draw& d, int64_t tokens, ConfigSizes& s) {
  json c = gemma(d, tokens, s);
  c["model_type"] = "gemma2";
  c["query_pre_attn_scalar"] = d.pick<int64_t>({8, 5});
  c["sliding_window"] = window(d, tokens);
  if (d.chance(80)) c["attn_logit_softcapping"] = 2.0;
  if (d.chance(80)) c["final_logit_softcapping"] = 3.0;
  return c;
}

json gemma3(Draw& d, int64_t tokens, ConfigSizes& s) {
  json c = gemma(d, tokens, s);
  c["model_type"] = "gemma3_text";
  c["query_pre_attn_scalar"] = d.pick<int64_t>({8, 5});
  c["sliding_window"] = window(d, tokens);
  c["sliding_window_pattern"] = d.between(1, 3);
  c["rope_theta"] = 3000.0;
  c["rope_local_base_freq"] = 50.0;
  if (d.chance(50)) c["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  return c;
}

json olmo2(Draw& d, int64_t tokens, ConfigSizes& s) {
  json c = layer_sizes(d, s);
  c["model_type"] = "olmo2";
  c["hidden_size"] = 8 * s.heads;
  c["head_dim"] = 8;  // for the scaling's factors
  if (d.chance(30)) c["attention_bias"] = true;
  add_rope(d, tokens, c);
  c.erase("head_dim");
  return c;
}

json smollm3(Draw& d, int64_t tokens, ConfigSizes& s) {
  json c = layer_sizes(d, s);
  c["model_type"] = "smollm3";
  c["hidden_size"] = 8 * s.heads;
  c["head_dim"] = 8;  // for the scaling's factors
  if (d.chance(30)) c["attention_bias"] = true;
  if (d.chance(30)) c["mlp_bias"] = true;
  if (d.chance(50)) {
    c["no_rope_layer_interval"] = d.between(1, 3);
  } else {
    json has_rope = json::array();
    for (int64_t l = 0; l < s.layers; ++l) has_rope.push_back(d.chance(60) ? 1 : 0);
    c["no_rope_layers"] = has_rope;
  }
  if (d.chance(50)) {
    c["use_sliding_window"] = true;
    c["sliding_window"] = window(d, tokens);
  }
  add_rope(d, tokens, c);
  c.erase("head_dim");
  return c;
}

}  // namespace

std::string random_config(Draw& d, int64_t tokens, ConfigSizes& sizes) {
  using Make = json (*)(Draw&, int64_t, ConfigSizes&);
  const std::vector<Make> families = {gpt2,  gpt2,   llama,  llama,  llama,  mistral, qwen,   qwen,
                                      gemma, gemma2, gemma2, gemma3, gemma3, olmo2,   smollm3};
  const json config = d.pick(families)(d, tokens, sizes);
  sizes.head_size = config.value("head_dim", int64_t{8});
  return config.dump();
}

LoraConfig random_lora(Draw& d, const std::string& config) {
  const json c = json::parse(config);
  const bool is_gpt2 = c["model_type"] == "gpt2";
  LoraConfig lora;
  lora.rank = d.between(1, 5);
  lora.alpha = d.pick<double>({1, 8, 3});
  lora.rslora = d.chance(30);
  for (const char* name :
       is_gpt2 ? std::vector<const char*>{"c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"}
               : std::vector<const char*>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                          "up_proj", "down_proj"})
    if (d.chance(50)) lora.targets.emplace_back(name);
  if (lora.targets.empty()) lora.targets = {"all-linear"};
  const bool tied = c.value("tie_word_embeddings", is_gpt2);
  if (!tied && d.chance(30)) lora.modules_to_save = {"lm_head"};
  return lora;
}

std::string print_lora(const LoraConfig& lora) {
  return json{{"r", lora.rank},
              {"alpha", lora.alpha},
              {"rslora", lora.rslora},
              {"targets", lora.targets},
              {"save", lora.modules_to_save}}
      .dump();
}

LoraConfig parse_lora(const std::string& text) {
  const json j = json::parse(text);
  LoraConfig lora;
  lora.rank = j.at("r");
  lora.alpha = j.at("alpha");
  lora.rslora = j.at("rslora");
  lora.targets = j.at("targets").get<std::vector<std::string>>();
  lora.modules_to_save = j.at("save").get<std::vector<std::string>>();
  return lora;
}

}  // namespace plait
