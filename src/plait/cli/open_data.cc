#include "plait/cli/open_data.h"

#include "plait/base/digest.h"
#include "plait/cli/common.h"
#include "plait/io/files.h"
#include "plait/report/progress.h"

namespace plait {

namespace {
// Templates that write the date would make other data every day. This is the one that those of
// Llama 3 write where no clock is given: 26 July 2024.
constexpr int64_t kTrainingDate = 1721952000;
}  // namespace

void add_data_options(CLI::App& command, DataFlags& o) {
  const std::string group = "Data";
  DataConfig& c = o.config;
  command
      .add_option("--data", o.train,
                  "files, folders or patterns: text, JSON lines (text; prompt and completion; "
                  "messages; prompt, chosen and rejected), Megatron's .bin/.idx")
      ->check(a_path())
      ->required()
      ->group(group);
  command.add_option("--data-weights", o.weights, "shares of the samples, one for each --data")
      ->group(group);
  command.add_option("--validation", o.validation, "data to validate on; left out: --held-out")
      ->check(a_path())
      ->group(group);
  command.add_option("--held-out", c.held_out, "share of --data to validate on")
      ->check(CLI::Range(0.0, 0.9))
      ->capture_default_str()
      ->group(group);
  command.add_option("--format", o.format, "auto, text, jsonl or megatron")
      ->check(CLI::IsMember({"auto", "text", "jsonl", "megatron"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--tokenizer", o.tokenizer,
                  "tokenizer.json, a .model file, a folder, or 'bytes'; left out: the model "
                  "folder's, else bytes")
      ->check(a_path())
      ->group(group);
  command
      .add_option("--packing", c.packing,
                  "packed (end to end), whole (cut only when longer than a slot), padded (one "
                  "document in a slot); auto: whole for examples (prompts and completions, "
                  "messages, preferences), packed for texts and Megatron's files")
      ->check(CLI::IsMember({"auto", "packed", "whole", "padded"}))
      ->capture_default_str()
      ->group(group);
  command.add_flag("--learn-all", c.learn_all, "also learn prompts and other roles' messages")
      ->group(group);
  command.add_flag("--skip-bad-lines", c.skip_bad_lines, "of JSON lines; counted and reported")
      ->group(group);
  command.add_option("--separator", c.separator, "cuts a text file into documents")->group(group);
  command.add_option("--long-pairs", c.long_pairs, "preference pairs longer than a slot")
      ->check(CLI::IsMember({"truncate", "drop"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--cache-folder", c.cache_folder, "of tokenised data; left out: beside it")
      ->check(a_path())
      ->group(group);
  command.add_flag("--cache,!--no-cache", c.cache, "keep what was tokenised for the next run")
      ->group(group);
}

ChatRenderer Text::renderer() const {
  if (!chat) return {};
  ChatRenderer r;
  std::string tokens;
  for (const auto& [name, value] : special_tokens) tokens += name + "=" + value + "\n";
  r.digest = digest(fmt::format("{} {}", chat->digest(), tokens));
  r.render = [this](const ChatRenderer::Json& messages, const ChatRenderer::Json& tools,
                    bool add_generation_prompt) {
    TemplateInputs in;
    in.messages = messages;
    in.tools = tools;
    in.add_generation_prompt = add_generation_prompt;
    for (const auto& [name, value] : special_tokens) in.more[name] = value;
    in.now = kTrainingDate;
    return chat->render(in);
  };
  return r;
}

Text open_text(const std::string& tokenizer, const std::string& model, int64_t vocabulary) {
  Text text;
  const bool folder_has_one = is_folder(model) && (file_exists(model + "/tokenizer.json") ||
                                                   file_exists(model + "/tokenizer.model") ||
                                                   file_exists(model + "/spiece.model"));
  std::string path = tokenizer;
  if (path.empty() && folder_has_one) path = model;
  if (path.empty() || path == "bytes") {
    if (path.empty() && vocabulary > 256)
      fail(
          "no tokenizer: '{}' has none and a vocabulary of {}; give --tokenizer, or --tokenizer "
          "bytes to train on bytes all the same",
          model, vocabulary);
    text.tokenizer = byte_tokenizer();
    text.from = "bytes";
  } else if (is_folder(path)) {
    TokenizerFolder folder = load_tokenizer_folder(path);
    text.tokenizer = std::move(folder.tokenizer);
    text.special_tokens = std::move(folder.special_tokens);
    if (!folder.chat_template.empty())
      text.chat = ChatTemplate::parse(folder.chat_template, path + ": chat_template");
    text.from = path;
  } else {
    text.tokenizer = load_tokenizer(path);
    text.from = path;
  }
  return text;
}

std::unique_ptr<Data> open_data(const DataFlags& o, const Text& text, int64_t slot_tokens,
                                int64_t vocabulary, uint64_t seed, std::FILE* out) {
  if (!o.weights.empty() && o.weights.size() != o.train.size())
    fail("{} data weights for {} data sources; needs one for each", o.weights.size(),
         o.train.size());
  DataConfig config = o.config;
  for (size_t i = 0; i < o.train.size(); ++i)
    config.train.push_back({o.train[i], o.format, o.weights.empty() ? 1 : o.weights[i]});
  for (const std::string& path : o.validation) config.validation.push_back({path, o.format, 1});
  config.slot_tokens = slot_tokens;
  config.vocabulary = vocabulary;
  config.seed = seed;
  BytesProgress progress(out);
  return Data::open(config, *text.tokenizer, text.renderer(),
                    [&](const std::string& what, int64_t done, int64_t total) {
                      progress.show(what, done, total);
                    });
}

}  // namespace plait
