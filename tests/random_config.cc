#include "random_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace plait {

namespace {

using nlohmann::json;

json gpt2(Draw& d, RandomSizes& s) {
  s.heads = s.kv_heads = 4;
  s.head_size = 8;
  json c = {
      {"model_type", "gpt2"}, {"vocab_size", 67}, {"n_positions", 64},          {"n_embd", 32},
      {"n_layer", s.layers},  {"n_head", 4},      {"layer_norm_epsilon", 1e-5}, {"attn_pdrop", 0},
      {"embd_pdrop", 0},      {"resid_pdrop", 0}};
  c["activation_function"] = d.pick<std::string>({"gelu_new", "gelu_new", "gelu", "quick_gelu"});
  if (d.chance(25)) c["n_inner"] = 40;
  if (d.chance(20)) c["tie_word_embeddings"] = false;
  if (d.chance(15)) c["scale_attn_weights"] = false;
  if (d.chance(15)) c["scale_attn_by_inverse_layer_idx"] = true;
  return c;
}

// Heads of 8 values; any number of key/value heads that divides.
void heads(Draw& d, RandomSizes& s, json& c) {
  s.heads = d.pick<int64_t>({4, 6, 8});
  s.head_size = 8;
  std::vector<int64_t> divisors;
  for (int64_t n = 1; n <= s.heads; ++n)
    if (s.heads % n == 0) divisors.push_back(n);
  s.kv_heads = d.pick(divisors);
  c["num_attention_heads"] = s.heads;
  c["num_key_value_heads"] = s.kv_heads;
  c["head_dim"] = s.head_size;
}

json scaling(Draw& d) {
  switch (d.below(5)) {
    case 0:
      return {{"rope_type", "linear"}, {"factor", 2.5}};
    case 1:
      return {{"rope_type", "dynamic"}, {"factor", 3.0}};
    case 2:
      return {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
    case 3:
      return {{"rope_type", "llama3"},
              {"factor", 8.0},
              {"low_freq_factor", 1.0},
              {"high_freq_factor", 4.0},
              {"original_max_position_embeddings", 32}};
    default:
      return {{"rope_type", "longrope"},
              {"short_factor", {1.0, 1.1, 1.3, 1.6}},
              {"long_factor", {1.5, 2.0, 3.0, 4.0}},
              {"original_max_position_embeddings", 16}};
  }
}

void family(Draw& d, const std::string& type, int64_t layers, json& c) {
  const bool gemma = type.starts_with("gemma");
  if (type != "qwen2" && d.chance(20)) c["attention_bias"] = true;
  if (type == "llama" && d.chance(20)) c["mlp_bias"] = true;
  if (type == "mistral") c["sliding_window"] = d.between(1, 20);
  if (type == "qwen2" || type == "qwen3") {
    c["use_sliding_window"] = d.chance(40);
    c["sliding_window"] = d.between(1, 20);
    c["max_window_layers"] = d.between(0, layers);
  }
  if (type == "gemma2" || type == "gemma3_text") {
    c["sliding_window"] = d.between(1, 20);
    c["query_pre_attn_scalar"] = d.pick<int64_t>({8, 5, 24});
    if (d.chance(50)) c["attn_logit_softcapping"] = 2.0;
    if (d.chance(50)) c["final_logit_softcapping"] = 3.0;
  }
  if (type == "gemma3_text") c["sliding_window_pattern"] = d.between(1, 3);
  if (!gemma) c["hidden_act"] = d.pick<std::string>({"silu", "silu", "gelu", "relu2"});
}

json llama_like(Draw& d, RandomSizes& s) {
  const std::string type =
      d.pick<std::string>({"llama", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2",
                           "gemma3_text", "olmo2", "smollm3"});
  json c = {{"model_type", type},
            {"vocab_size", 67},
            {"hidden_size", 32},
            {"num_hidden_layers", s.layers},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 10000.0},
            {"max_position_embeddings", 16}};
  heads(d, s, c);
  c["intermediate_size"] = d.pick<int64_t>({88, 40, 37});
  c["tie_word_embeddings"] = d.chance(40);
  family(d, type, s.layers, c);
  if (d.chance(30)) c["rope_scaling"] = scaling(d);
  return c;
}

}  // namespace

std::string random_config(Draw& d, RandomSizes& s) {
  s.layers = d.between(1, 4);
  return (d.chance(25) ? gpt2(d, s) : llama_like(d, s)).dump();
}

}  // namespace plait
