// plait generate MODEL_FOLDER --prompt TEXT, or --prompts FILE.
#include "plait/infer/generate.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/cli/open_data.h"
#include "plait/data/streams.h"
#include "plait/infer/window.h"
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
  std::optional<int64_t> slot_tokens;  // left out: as many as are needed
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

struct Prompt {
  Json record;
  std::vector<int32_t> ids;
  int64_t line = 0;  // of the file; 0: --prompt
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

class GenerateCommand {
 public:
  explicit GenerateCommand(const SampleOptions& o);
  void run();

 private:
  std::vector<int32_t> prompt_of(const Json& record) const;
  void read_prompts();
  int64_t window(const Model& model) const;
  void note_left_out(int64_t window) const;
  void answer_file();
  void continue_prompt();

  SampleOptions o_;
  Text text_;
  std::vector<Prompt> prompts_;
  std::unique_ptr<Generator> generator_;
};

GenerateCommand::GenerateCommand(const SampleOptions& o) : o_(o) {
  if (o.prompt.has_value() == !o.prompts.empty())
    fail("a prompt to continue is needed: --prompt TEXT, or --prompts FILE with one on each line");
  for (const std::string& s : o.stop)
    if (s.empty()) fail("--stop '': the text is empty");
  Model model = load_model(o.folder, {1, 1}, Head::logits);
  text_ = open_text(o.tokenizer, o.folder, model.extent("V").size);
  read_prompts();
  const int64_t seen = window(model);
  note_left_out(seen);
  model = load_model(o.folder, {1, seen}, Head::logits);
  say_notes(model);
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

// All of them before the first is answered: their lengths decide how far back the model sees.
void GenerateCommand::read_prompts() {
  if (o_.prompt) {
    prompts_.push_back({{}, text_.tokenizer->encode(*o_.prompt), 0});
    return;
  }
  LineReader lines(o_.prompts);
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    try {
      Json record = Json::parse(line);
      std::vector<int32_t> ids = prompt_of(record);
      prompts_.push_back({std::move(record), std::move(ids), lines.number()});
    } catch (const Json::exception& e) {
      fail("{}:{}: {}", o_.prompts, lines.number(), e.what());
    } catch (const Error& e) {
      fail("{}:{}: {}", o_.prompts, lines.number(), e.what());
    }
  }
}

int64_t GenerateCommand::window(const Model& model) const {
  if (o_.slot_tokens) return *o_.slot_tokens;
  int64_t longest = 1;
  for (const Prompt& p : prompts_) longest = std::max(longest, p.tokens());
  return window_for(needed_tokens(longest, o_.generate.tokens), positions_of(model));
}

void GenerateCommand::note_left_out(int64_t window) const {
  std::string first;
  int64_t cut = 0;
  for (const Prompt& p : prompts_) {
    const std::string note = left_out_note(p.tokens(), o_.generate.tokens, window);
    if (note.empty() || cut++ > 0) continue;
    first = p.line > 0 ? fmt::format("{}:{}: {}", o_.prompts, p.line, note) : note;
  }
  if (cut > 1) first += fmt::format("; so it is with {} prompts", cut);
  if (cut > 0) fmt::print(stderr, "plait: note: {}\n", first);
}

// Every line again, with what was generated: in the order and with the seed of the file's lines.
void GenerateCommand::answer_file() {
  for (Prompt& p : prompts_) {
    try {
      Json& record = p.record;
      Stream stream(*text_.tokenizer, o_.stop);
      GenerateOptions options = o_.generate;
      options.seed += static_cast<uint64_t>(p.line - 1);
      generator_->generate(p.ids, options, [&](int32_t id) { return stream.add(id); });
      record["generated"] = std::string(stream.text(true));
      fmt::print("{}\n", record.dump(-1, ' ', false, Json::error_handler_t::replace));
      std::fflush(stdout);
    } catch (const Json::exception& e) {
      fail("{}:{}: {}", o_.prompts, p.line, e.what());
    } catch (const Error& e) {
      fail("{}:{}: {}", o_.prompts, p.line, e.what());
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
  generator_->generate(prompts_[0].ids, o_.generate, [&](int32_t id) {
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
  command
      ->add_option("--slot-tokens", o->slot_tokens,
                   "how far back the model sees; left out: the longest prompt with its --tokens, "
                   "at most the positions that the model has")
      ->check(whole_number(1, kMaxSlots));
  command->callback([o] { GenerateCommand(*o).run(); });
}

}  // namespace plait
