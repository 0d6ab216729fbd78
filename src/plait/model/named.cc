// Named configurations: published sizes and small ones, as their config.json (families.h).
#include <algorithm>
#include <iterator>

#include "plait/model/families.h"

namespace plait {

namespace {

struct Named {
  std::string_view name, config;
};
constexpr Named kNamed[] = {{"gpt2", R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_embd": 768, "n_head": 12,
  "n_layer": 12, "n_positions": 1024, "tie_word_embeddings": true, "torch_dtype": "float32",
  "vocab_size": 50257, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0
}
)"},
                            {"gpt2-tiny", R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 3,
  "n_positions": 64, "tie_word_embeddings": true, "torch_dtype": "float32", "vocab_size": 67,
  "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0
}
)"},
                            {"llama-3-8b", R"({
  "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
  "intermediate_size": 14336, "max_position_embeddings": 8192, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false,
  "torch_dtype": "float32", "vocab_size": 128256
}
)"},
                            {"llama-demo", R"({
  "architectures": ["LlamaForCausalLM"], "head_dim": 32, "hidden_act": "silu",
  "hidden_size": 192, "intermediate_size": 512, "max_position_embeddings": 1024,
  "model_type": "llama", "num_attention_heads": 6, "num_hidden_layers": 6,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "torch_dtype": "float32", "vocab_size": 256
}
)"},
                            {"llama-tiny", R"({
  "architectures": ["LlamaForCausalLM"], "head_dim": 8, "hidden_act": "silu",
  "hidden_size": 32, "intermediate_size": 88, "max_position_embeddings": 64,
  "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "torch_dtype": "float32", "vocab_size": 67
}
)"},
                            {"gemma-3-1b", R"({
  "architectures": ["Gemma3ForCausalLM"], "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912,
  "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4,
  "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256,
  "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_theta": 1000000.0,
  "sliding_window": 512, "sliding_window_pattern": 6, "tie_word_embeddings": true,
  "torch_dtype": "float32", "vocab_size": 262144
}
)"},
                            {"llama-3.2-1b", R"({
  "architectures": ["LlamaForCausalLM"], "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "float32",
  "vocab_size": 128256
}
)"},
                            {"qwen2.5-0.5b", R"({
  "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 896,
  "intermediate_size": 4864, "max_position_embeddings": 32768, "model_type": "qwen2",
  "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": true,
  "torch_dtype": "float32", "use_sliding_window": false, "vocab_size": 151936
}
)"},
                            {"qwen3-0.6b", R"({
  "architectures": ["Qwen3ForCausalLM"], "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960,
  "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "tie_word_embeddings": true, "torch_dtype": "float32", "vocab_size": 151936
}
)"},
                            {"smollm-135m", R"({
  "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 576,
  "intermediate_size": 1536, "max_position_embeddings": 2048, "model_type": "llama",
  "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
  "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": true,
  "torch_dtype": "float32", "vocab_size": 49152
}
)"}};

}  // namespace

std::vector<std::string> named_models() {
  std::vector<std::string> names;
  for (const Named& n : kNamed) names.emplace_back(n.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string named_config(std::string_view name) {
  for (const Named& n : kNamed)
    if (n.name == name) return std::string(n.config);
  fail("there is no named configuration '{}'; there are {}", name, fmt::join(named_models(), ", "));
}

}  // namespace plait
