// plait generate MODEL_FOLDER --prompt TEXT, or --prompts FILE.
#include "plait/infer/generate.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/cli/open_data.h"
#include "plait/data/streams.h"
#include "plait/model/adapter.h"
#include "plait/model/folder.h"
#include "plait/model/lora.h"

namespace plait {

namespace {

using Json = nlohmann::ordered_json;

struct SampleOptions {
  std::string folder, adapter, tokenizer;
  std::string prompts;                // a file
  std::optional<std::string> prompt;  // or one text
  std::vector<std::string> stop;
  int64_t slot_tokens = 128;  // as plait train and the demo
  GenerateOptions generate;
};

// What is decided of a text that grows by tokens: all but an unfinished character and what may
// become a stop text, of which nothing is given out.
class Stream {
 public:
  Stream(const Tokenizer& tokenizer, const std::vector<std::string>& stop)
      : tokenizer_(tokenizer), stop_(stop) {}

  // Whether to go on.
  bool add(int32_t id) {
    ids_.push_back(id);
    text_ = tokenizer_.decode(ids_, true);
    size_t end = std::string::npos;
    for (const std::string& s : stop_) end = std::min(end, text_.find(s));
    stopped_ = end != std::string::npos;
    if (stopped_) text_.resize(end);
    return !stopped_;
  }
  // All of it; or, while more may come, what is certain.
  std::string_view text(bool at_end) const {
    std::string_view sure = text_;
    if (at_end || stopped_) return sure;
    constexpr std::string_view kUnfinished = "\xef\xbf\xbd";
    if (sure.ends_with(kUnfinished)) sure.remove_suffix(kUnfinished.size());
    size_t held = 0;
    for (const std::string& s : stop_)
      for (size_t n = 1; n < s.size(); ++n)
        if (sure.ends_with(std::string_view(s).substr(0, n))) held = std::max(held, n);
    return sure.substr(0, sure.size() - held);
  }

 private:
  const Tokenizer& tokenizer_;
  const std::vector<std::string>& stop_;
  std::vector<int32_t> ids_;
  std::string text_;
  bool stopped_ = false;
};

class GenerateCommand {
 public:
  explicit GenerateCommand(const SampleOptions& o);
  void run();

 private:
  std::vector<int32_t> prompt_of(const Json& record) const;
  void answer_file();
  void continue_prompt();

  SampleOptions o_;
  Text text_;
  std::unique_ptr<Generator> generator_;
};

GenerateCommand::GenerateCommand(const SampleOptions& o) : o_(o) {
  if (o.prompt.has_value() == !o.prompts.empty())
    fail("a prompt to continue is needed: --prompt TEXT, or --prompts FILE with one on each line");
  for (const std::string& s : o.stop)
    if (s.empty()) fail("--stop '': the text is empty");
  Model model = load_model(o.folder, {1, o.slot_tokens}, Head::logits);
  say_notes(model);
  text_ = open_text(o.tokenizer, o.folder, model.extent("V").size);
  if (text_.tokenizer->eos()) o_.generate.stop = {*text_.tokenizer->eos()};
  HostTensors parameters = load_parameters(model, o.folder);
  if (!o.adapter.empty()) {
    model = with_lora(std::move(model), load_adapter_config(o.adapter));
    for (auto& [name, t] : load_adapter(model, o.adapter)) parameters[name] = std::move(t);
  }
  generator_ = std::make_unique<Generator>(model, parameters);
}

// A record as training takes it: its prompt, or its messages up to an answer at their end.
std::vector<int32_t> GenerateCommand::prompt_of(const Json& record) const {
  const char* keys = "expected an object with \"prompt\" or \"messages\"";
  if (!record.is_object()) fail("{}", keys);
  const auto found = record.contains("prompt") ? record.find("prompt") : record.find("messages");
  if (found == record.end()) fail("{}", keys);
  if (found->is_string()) return text_.tokenizer->encode(found->get<std::string>());
  if (!found->is_array() || found->empty()) fail("{}; found neither a text nor messages", keys);
  if (!text_.chat) fail("messages, and '{}' has no chat template", text_.from);
  Json messages = *found;
  const Json& last = messages.back();
  if (last.is_object() && last.value("role", Json()) == "assistant")
    messages.erase(messages.size() - 1);
  EncodeOptions options;
  options.add_special = false;  // the template writes them
  return text_.tokenizer->encode(
      text_.renderer().render(messages, record.value("tools", Json()), true), options);
}

// Every line again, with what was generated: in the order and with the seed of the file's lines.
void GenerateCommand::answer_file() {
  LineReader lines(o_.prompts);
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    try {
      Json record = Json::parse(line);
      Stream stream(*text_.tokenizer, o_.stop);
      GenerateOptions options = o_.generate;
      options.seed += static_cast<uint64_t>(lines.number() - 1);
      generator_->generate(prompt_of(record), options, [&](int32_t id) { return stream.add(id); });
      record["generated"] = std::string(stream.text(true));
      fmt::print("{}\n", record.dump(-1, ' ', false, Json::error_handler_t::replace));
      std::fflush(stdout);
    } catch (const Json::exception& e) {
      fail("{}:{}: {}", o_.prompts, lines.number(), e.what());
    } catch (const Error& e) {
      fail("{}:{}: {}", o_.prompts, lines.number(), e.what());
    }
  }
}

void GenerateCommand::continue_prompt() {
  Stream stream(*text_.tokenizer, o_.stop);
  size_t printed = 0;
  const auto print = [&](bool at_end) {
    const std::string_view text = stream.text(at_end);
    if (text.size() <= printed) return;
    fmt::print("{}", text.substr(printed));
    std::fflush(stdout);
    printed = text.size();
  };
  fmt::print("{}", *o_.prompt);
  generator_->generate(text_.tokenizer->encode(*o_.prompt), o_.generate, [&](int32_t id) {
    const bool more = stream.add(id);
    print(false);
    return more;
  });
  print(true);
  fmt::print("\n");
}

void GenerateCommand::run() {
  if (o_.prompt)
    continue_prompt();
  else
    answer_file();
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "continue a text with a trained model");
  auto o = std::make_shared<SampleOptions>();
  command->add_option("MODEL_FOLDER", o->folder, "folder that `plait train --out` wrote")
      ->required();
  command->add_option("--prompt", o->prompt, "text to continue");
  command
      ->add_option("--prompts", o->prompts,
                   "JSON lines with \"prompt\" or \"messages\"; printed again with \"generated\"")
      ->check(a_path())
      ->excludes("--prompt");
  command->add_option("--adapter", o->adapter, "folder of an adapter (PEFT)")->check(a_path());
  command
      ->add_option("--tokenizer", o->tokenizer,
                   "tokenizer.json, a .model file, a folder, or 'bytes'; left out: the model "
                   "folder's, else bytes")
      ->check(a_path());
  command->add_option("--tokens", o->generate.tokens, "tokens to add")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command->add_option("--stop", o->stop,
                      "texts before which to end, besides the tokenizer's end of text");
  command->add_option("--temperature", o->generate.temperature, "0: always the likeliest token")
      ->capture_default_str();
  command->add_option("--seed", o->generate.seed, "of the draws")
      ->check(whole_number(0, INT64_MAX))
      ->capture_default_str();
  command->add_option("--slot-tokens", o->slot_tokens, "how far back the model sees")
      ->check(whole_number(1, kMaxSlots))
      ->capture_default_str();
  command->callback([o] { GenerateCommand(*o).run(); });
}

}  // namespace plait
