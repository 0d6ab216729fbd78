#include "plait/model/families.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "plait/io/files.h"
#include "plait/model/config.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

// To add a family, write its file and add its line here.
constexpr Family kFamilies[] = {{"llama", "LlamaForCausalLM", llama_text},
                                {"gpt2", "GPT2LMHeadModel", gpt2_text}};

constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;
constexpr int64_t kMaxModelBytes = int64_t{1} << 28;

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
)"}};

void check_batch(const BatchShape& batch) {
  if (batch.slots < 1 || batch.slots > kMaxIds || batch.slot_tokens < 1 ||
      batch.slot_tokens > kMaxIds || batch.slots * batch.slot_tokens > kMaxIds)
    fail("{} slots of {} tokens; needs at least 1 of each and at most {} tokens in all",
         batch.slots, batch.slot_tokens, kMaxIds);
}

void check_head(const Model& m, Head head) {
  if (head == Head::loss && m.loss == kNone)
    fail("model '{}': it has no loss; needs a line 'loss NAME' to be trained", m.name);
  if (head == Head::logits && m.logits == kNone)
    fail("model '{}': it has no logits; needs a line 'logits NAME' for inference", m.name);
}

Model load_text(const std::string& path, const BatchShape& batch, Head head) {
  check_batch(batch);
  Model m = parse_model(read_text(path, kMaxModelBytes), path);
  check_head(m, head);
  const auto is_tokens = [](const Extent& e) { return e.name == "T"; };
  if (std::any_of(m.extents.begin(), m.extents.end(), is_tokens))
    m = with_extent(std::move(m), "T", batch.slots * batch.slot_tokens, batch.slot_tokens);
  return m;
}

Model load_folder(const fs::path& folder, const BatchShape& batch, Head head) {
  const fs::path config = folder / "config.json", text = folder / "model.plait";
  if (!file_exists(config) && file_exists(text)) return load_text(text.string(), batch, head);
  try {
    return build_model(read_text(config.string(), kMaxConfigBytes), batch, head);
  } catch (const Error& e) {
    fail("model folder '{}': {}", folder.string(), e.what());
  }
}

}  // namespace

Model build_model(std::string_view config_json, const BatchShape& batch, Head head) {
  check_batch(batch);
  Config config(config_json);
  const std::string type = config.text("model_type", "");
  const auto family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const Family& f) { return f.model_type == type; });
  if (family == std::end(kFamilies)) {
    std::vector<std::string_view> known;
    for (const Family& f : kFamilies) known.push_back(f.model_type);
    fail("config.json: model_type '{}' is not supported yet; known are {}", type,
         fmt::join(known, ", "));
  }
  config.only("architectures", {nlohmann::json::array({family->architecture})});
  std::string text = fmt::format("model {}\ndtype {}\n", type, info(config.dtype()).name);
  text += family->text(config, batch, head);
  config.finish();
  Model model = parse_model(text, type + " family");
  model.files = config.files;
  model.config_json = config_json;
  return model;
}

Model load_model(const std::string& model, const BatchShape& batch, Head head) {
  if (is_folder(model)) return load_folder(model, batch, head);
  if (fs::path(model).extension() == ".plait") return load_text(model, batch, head);
  for (const Named& n : kNamed)
    if (n.name == model) {
      Model m = build_model(n.config, batch, head);
      m.name = model;
      return m;
    }
  fail("model '{}': neither a folder nor a .plait file nor one of {}", model,
       fmt::join(named_models(), ", "));
}

std::vector<std::string> named_models() {
  std::vector<std::string> names;
  for (const Named& n : kNamed) names.emplace_back(n.name);
  return names;
}

std::string named_config(std::string_view name) {
  for (const Named& n : kNamed)
    if (n.name == name) return std::string(n.config);
  fail("there is no named configuration '{}'; there are {}", name, fmt::join(named_models(), ", "));
}

}  // namespace plait
