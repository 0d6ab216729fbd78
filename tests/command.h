// The program `plait` as a user runs it: a process of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace plait {

// config.json of a model that trains in a second, on bytes.
inline constexpr const char* kTinyLlama =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
 "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
 "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "hidden_act": "silu"})";

struct CommandResult {
  int exit_code = 0;  // 128 + signal when it was killed
  std::string out;    // standard output and error together
};

// When a process is sent a signal: `milliseconds` after it starts, or after it has printed `text`.
struct Kill {
  int signal = 9;
  int milliseconds = 0;
  std::string text;  // empty: after it starts
};

// Runs `plait ARGS`.
CommandResult run_plait(const std::vector<std::string>& args, std::optional<Kill> kill = {});

}  // namespace plait
