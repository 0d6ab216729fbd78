// load_tokenizer, load_tokenizer_folder: the files around a tokenizer.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "plait/base/error.h"
#include "plait/io/files.h"
#include "plait/io/json.h"
#include "plait/tokens/json_section.h"
#include "plait/tokens/sentencepiece.h"
#include "plait/tokens/tokenizer.h"
#include "plait/tokens/tokenizer_files.h"
#include "plait/tokens/tokenizer_json.h"
#include "plait/tokens/utf8.h"

namespace plait {

using nlohmann::json;

namespace {

constexpr int64_t kMaxTokenizer = int64_t{512} << 20, kMaxConfig = 64 << 20;
constexpr std::array kSpecialNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};
// Whatever says how text becomes ids, for plait or for others.
constexpr std::array kFiles = {
    "tokenizer.json",          "tokenizer.model",   "spiece.model", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json",   "merges.txt",
    "chat_template.jinja",     "chat_template.json"};

bool ends_with(std::string_view text, std::string_view end) { return text.ends_with(end); }

std::unique_ptr<Tokenizer> load_file(const std::string& path) {
  const std::string text = read_text(path, kMaxTokenizer);
  if (ends_with(path, ".json")) return parse_tokenizer_json(text, path);
  if (ends_with(path, ".model")) return parse_sentencepiece(text, path);
  fail("{}: a tokenizer file ends in .json or .model", path);
}

// What the JSON files beside a tokenizer say; a missing file says nothing.
class Config {
 public:
  explicit Config(const std::string& folder) : folder_(folder) {
    path_ = folder + "/tokenizer_config.json";
    config_ = read(path_);
    for (const char* name : kSpecialNames) take_special(config_, path_, name);
    const std::string map_path = folder + "/special_tokens_map.json";
    const json map = read(map_path);
    for (const char* name : kSpecialNames) take_special(map, map_path, name);
    read_added();
  }

  const std::map<std::string, std::string>& special() const { return special_; }
  const std::vector<AddedToken>& added() const { return added_; }

  std::string word(const char* name) const {
    const auto found = config_.find(name);
    if (found == config_.end() || found->is_null()) return "";
    if (!found->is_string())
      fail("{}: {}: expected a string, found {}", path_, name, json_kind(*found));
    return found->get<std::string>();
  }
  std::optional<bool> flag(const char* name) const {
    const auto found = config_.find(name);
    if (found == config_.end() || found->is_null()) return std::nullopt;
    if (!found->is_boolean())
      fail("{}: {}: expected true or false, found {}", path_, name, json_kind(*found));
    return found->get<bool>();
  }

  // chat_template.jinja, or chat_template.json, or tokenizer_config.json; in this order.
  std::string chat_template() const {
    const std::string jinja = folder_ + "/chat_template.jinja";
    if (file_exists(jinja)) {
      const std::string text = read_text(jinja, kMaxConfig);
      require_utf8(text, jinja);
      return text;
    }
    const std::string path = folder_ + "/chat_template.json";
    const json own = read(path);
    if (own.contains("chat_template")) return template_in(own["chat_template"], path);
    if (config_.contains("chat_template")) return template_in(config_["chat_template"], path_);
    return "";
  }

 private:
  static json read(const std::string& path) {
    if (!file_exists(path)) return json::object();
    json value = parse_json(read_text(path, kMaxConfig), path, 64, size_t{1} << 22);
    if (!value.is_object()) fail("{}: expected an object, found {}", path, json_kind(value));
    return value;
  }

  // A token is a string, or an object that holds it as "content".
  void take_special(const json& from, const std::string& path, const char* name) {
    const auto found = from.find(name);
    if (found == from.end() || found->is_null() || special_.contains(name)) return;
    const json* text = &*found;
    if (text->is_object() && text->contains("content")) text = &(*text)["content"];
    if (!text->is_string())
      fail("{}: {}: expected a token, found {}", path, name, json_kind(*text));
    special_[name] = text->get<std::string>();
  }

  void read_added() {
    const auto found = config_.find("added_tokens_decoder");
    if (found == config_.end() || found->is_null()) return;
    if (!found->is_object())
      fail("{}: added_tokens_decoder: expected an object, found {}", path_, json_kind(*found));
    for (auto it = found->begin(); it != found->end(); ++it) {
      const std::string where = fmt::format("{}: added_tokens_decoder.{}", path_, it.key());
      const bool digits = !it.key().empty() && it.key().size() <= 8 &&
                          it.key().find_first_not_of("0123456789") == std::string::npos;
      if (!digits) fail("{}: expected an id", where);
      added_.push_back(read_added_token(*it, std::stoll(it.key()), where));
    }
    std::sort(added_.begin(), added_.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  }

  // A string, or a list of named ones, of which "default" is meant.
  static std::string template_in(const json& value, const std::string& path) {
    if (value.is_null()) return "";
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_array())
      fail("{}: chat_template: expected a string, found {}", path, json_kind(value));
    for (const json& entry : value)
      if (entry.is_object() && entry.value("name", json()) == "default" &&
          entry.contains("template") && entry["template"].is_string())
        return entry["template"].get<std::string>();
    fail("{}: chat_template: a list without an entry named 'default'", path);
  }

  std::string folder_, path_;
  json config_;
  std::map<std::string, std::string> special_;
  std::vector<AddedToken> added_;
};

std::string special_or_empty(const Config& config, const char* name) {
  const auto found = config.special().find(name);
  return found == config.special().end() ? "" : found->second;
}

// transformers builds the text's surroundings anew when either key is there.
std::optional<TokenizerChanges::Around> around_of(const Config& config) {
  const auto bos = config.flag("add_bos_token"), eos = config.flag("add_eos_token");
  if (!bos && !eos) return std::nullopt;
  TokenizerChanges::Around around;
  const std::string bos_token = special_or_empty(config, "bos_token");
  const std::string eos_token = special_or_empty(config, "eos_token");
  if (bos.value_or(false) && !bos_token.empty()) around.before = {bos_token};
  if (eos.value_or(false) && !eos_token.empty()) around.after = {eos_token};
  return around;
}

std::unique_ptr<Tokenizer> load_model_file(const std::string& path, const Config& config) {
  SentencePieceOptions o;
  std::string name = config.word("tokenizer_class");
  if (ends_with(name, "Fast")) name.resize(name.size() - 4);
  constexpr std::array known = {"",
                                "LlamaTokenizer",
                                "CodeLlamaTokenizer",
                                "GemmaTokenizer",
                                "T5Tokenizer",
                                "PreTrainedTokenizer"};
  if (std::find(known.begin(), known.end(), name) == known.end())
    fail(
        "{}: tokenizer_class '{}' may number the pieces of its SentencePiece model anew; "
        "supported are LlamaTokenizer, CodeLlamaTokenizer, GemmaTokenizer, T5Tokenizer, or a "
        "tokenizer.json",
        path, name);
  const bool t5 = name == "T5Tokenizer" || (name.empty() && ends_with(path, "spiece.model"));
  o.add_bos = config.flag("add_bos_token").value_or(!t5);
  o.add_eos = config.flag("add_eos_token").value_or(t5);
  o.legacy = config.flag("legacy").value_or(false);
  o.added = config.added();
  return parse_sentencepiece(read_text(path, kMaxTokenizer), path, o);
}

std::unique_ptr<Tokenizer> load_from(const std::string& folder, const Config& config) {
  const std::string path = folder + "/tokenizer.json";
  if (file_exists(path)) {
    TokenizerChanges changes{config.added(), around_of(config)};
    return parse_tokenizer_json(read_text(path, kMaxTokenizer), path, changes);
  }
  for (const char* name : {"tokenizer.model", "spiece.model"})
    if (file_exists(folder + "/" + name)) return load_model_file(folder + "/" + name, config);
  fail("{}: holds no tokenizer; expected tokenizer.json, tokenizer.model or spiece.model", folder);
}

}  // namespace

TokenizerFolder load_tokenizer_folder(const std::string& folder) {
  if (!is_folder(folder)) fail("{}: not a folder", folder);
  const Config config(folder);
  TokenizerFolder result;
  result.tokenizer = load_from(folder, config);
  result.special_tokens = config.special();
  result.bos_token = special_or_empty(config, "bos_token");
  result.eos_token = special_or_empty(config, "eos_token");
  result.chat_template = config.chat_template();
  Tokenizer& t = *result.tokenizer;
  SpecialIds ids{t.bos(), t.eos(), t.pad(), t.unk()};
  const auto set = [&](const char* name, std::optional<int32_t>& id) {
    const std::string token = special_or_empty(config, name);
    if (token.empty()) return;
    id = t.id(token);
    if (!id) fail("{}: {} '{}' is not in the tokenizer's vocabulary", folder, name, token);
  };
  set("bos_token", ids.bos);
  set("eos_token", ids.eos);
  set("pad_token", ids.pad);
  set("unk_token", ids.unk);
  t.set_special_ids(ids);
  return result;
}

std::map<std::string, std::string> tokenizer_files(const std::string& path) {
  std::map<std::string, std::string> files;
  if (path == "bytes") {
    files["tokenizer.json"] = byte_tokenizer_json();
    files["tokenizer_config.json"] =
        "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
        "  \"clean_up_tokenization_spaces\": false\n}\n";
  } else if (is_folder(path)) {
    for (const char* name : kFiles)
      if (const std::string file = path + "/" + name; file_exists(file))
        files[name] = read_text(file, kMaxTokenizer);
  } else {
    files[path.ends_with(".json") ? "tokenizer.json" : "tokenizer.model"] =
        read_text(path, kMaxTokenizer);
  }
  return files;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (is_folder(path)) return load_tokenizer_folder(path).tokenizer;
  if (!file_exists(path)) fail("{}: no such file or folder", path);
  return load_file(path);
}

}  // namespace plait
