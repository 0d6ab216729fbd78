#include "plait/tokens/model.h"

#include "plait/tokens/json_section.h"

namespace plait {

std::string byte_fallback_token(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

std::vector<int32_t> byte_fallback_ids(const Vocabulary& vocabulary) {
  std::vector<int32_t> ids;
  for (int b = 0; b < 256; ++b) {
    const auto id = vocabulary.id(byte_fallback_token(static_cast<unsigned char>(b)));
    if (!id) return {};
    ids.push_back(*id);
  }
  return ids;
}

std::unique_ptr<TokenModel> read_token_model(const nlohmann::json& value,
                                             const std::string& where) {
  Section s(value, where);
  std::string type = s.string("type", "");
  // Older files do not say it.
  if (type.empty() && s.has("merges")) type = "BPE";
  if (type.empty() && value.contains("vocab") && value["vocab"].is_array()) type = "Unigram";
  std::unique_ptr<TokenModel> model;
  if (type == "BPE") model = read_bpe(s);
  if (type == "Unigram") model = read_unigram(s);
  if (model == nullptr)
    s.error("type", "model '{}' is not supported; supported are BPE and Unigram", type);
  s.finish();
  return model;
}

}  // namespace plait
