#include "plait/model/families.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "plait/io/files.h"
#include "plait/model/config.h"
#include "plait/model/preference.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

// To add a family, write its file and add its line here.
constexpr Family kFamilies[] = {{"llama", "LlamaForCausalLM", llama_text},
                                {"mistral", "MistralForCausalLM", mistral_text},
                                {"qwen2", "Qwen2ForCausalLM", qwen2_text},
                                {"qwen3", "Qwen3ForCausalLM", qwen3_text},
                                {"gemma", "GemmaForCausalLM", gemma_text},
                                {"gemma2", "Gemma2ForCausalLM", gemma2_text},
                                {"gemma3_text", "Gemma3ForCausalLM", gemma3_text},
                                {"olmo2", "Olmo2ForCausalLM", olmo2_text},
                                {"smollm3", "SmolLM3ForCausalLM", smollm3_text},
                                {"gpt2", "GPT2LMHeadModel", gpt2_text}};

constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;
constexpr int64_t kMaxModelBytes = int64_t{1} << 28;

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
  const auto is_token_loss = [](const ModelResult& r) { return r.name == "token_loss"; };
  if (head == Head::token_loss && std::none_of(m.results.begin(), m.results.end(), is_token_loss))
    fail("model '{}': it has no loss for each token; needs a line 'result token_loss NAME'",
         m.name);
  if (head == Head::preference) preference_of(m);
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

Model load_folder(const fs::path& folder, const BatchShape& batch, Head head, Dropout dropout) {
  const fs::path config = folder / "config.json", text = folder / "model.plait";
  if (!file_exists(config) && file_exists(text)) return load_text(text.string(), batch, head);
  try {
    return build_model(read_text(config.string(), kMaxConfigBytes), batch, head, dropout);
  } catch (const Error& e) {
    fail("model folder '{}': {}", folder.string(), e.what());
  }
}

}  // namespace

Model build_model(std::string_view config_json, const BatchShape& batch, Head head,
                  Dropout dropout) {
  check_batch(batch);
  Config config(config_json);
  config.dropout = dropout;
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
  config.only("add_cross_attention", {false});
  config.only("is_encoder_decoder", {false});
  config.only("pruned_heads", {nlohmann::json::object()});
  std::string text = fmt::format("model {}\ndtype {}\n", type, info(config.dtype()).name);
  text += family->text(config, batch, head);
  config.finish();
  Model model = parse_model(text, type + " family");
  model.files = config.files;
  model.config_json = config_json;
  model.notes = std::move(config.notes);
  return model;
}

Model load_model(const std::string& model, const BatchShape& batch, Head head, Dropout dropout) {
  if (is_folder(model)) return load_folder(model, batch, head, dropout);
  if (fs::path(model).extension() == ".plait") return load_text(model, batch, head);
  const std::vector<std::string> names = named_models();
  if (std::find(names.begin(), names.end(), model) != names.end()) {
    Model m = build_model(named_config(model), batch, head, dropout);
    m.name = model;
    return m;
  }
  fail("model '{}': neither a folder nor a .plait file nor one of {}", model,
       fmt::join(names, ", "));
}

}  // namespace plait
