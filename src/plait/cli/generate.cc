// plait generate MODEL_FOLDER --prompt TEXT.
#include "plait/infer/generate.h"

#include <cstdio>
#include <memory>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/cli/open_data.h"

namespace plait {

namespace {

struct SampleOptions {
  std::string folder, prompt, tokenizer;
  int64_t slot_tokens = 128;  // as plait train and the demo
  GenerateOptions generate;
};

// Prints what is decided of a text that grows by tokens: all but an unfinished character.
class Stream {
 public:
  explicit Stream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void add(int32_t id) {
    ids_.push_back(id);
    std::string text = tokenizer_.decode(ids_, true);
    constexpr std::string_view kUnfinished = "\xef\xbf\xbd";
    if (text.ends_with(kUnfinished)) text.resize(text.size() - kUnfinished.size());
    if (text.size() <= printed_) return;
    fmt::print("{}", text.substr(printed_));
    std::fflush(stdout);
    printed_ = text.size();
  }

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t printed_ = 0;
};

void run_generate(const SampleOptions& o) {
  const Model model = load_model(o.folder, {1, o.slot_tokens}, Head::logits);
  Generator generator(model, load_parameters(model, o.folder));
  const Text text = open_text(o.tokenizer, o.folder, model.extent("V").size);
  Stream stream(*text.tokenizer);
  GenerateOptions options = o.generate;
  if (text.tokenizer->eos()) options.stop = {*text.tokenizer->eos()};
  fmt::print("{}", o.prompt);
  generator.generate(text.tokenizer->encode(o.prompt), options,
                     [&](int32_t id) { stream.add(id); });
  fmt::print("\n");
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "continue a text with a trained model");
  auto o = std::make_shared<SampleOptions>();
  command->add_option("MODEL_FOLDER", o->folder, "folder that `plait train --out` wrote")
      ->required();
  command->add_option("--prompt", o->prompt, "text to continue")->required();
  command
      ->add_option("--tokenizer", o->tokenizer,
                   "tokenizer.json, a .model file, a folder, or 'bytes'; left out: the model "
                   "folder's, else bytes")
      ->check(a_path());
  command->add_option("--tokens", o->generate.tokens, "tokens to add")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command->add_option("--temperature", o->generate.temperature, "0: always the likeliest token")
      ->capture_default_str();
  command->add_option("--seed", o->generate.seed, "of the draws")
      ->check(whole_number(0, INT64_MAX))
      ->capture_default_str();
  command->add_option("--slot-tokens", o->slot_tokens, "how far back the model sees")
      ->check(whole_number(1, kMaxSlots))
      ->capture_default_str();
  command->callback([o] { run_generate(*o); });
}

}  // namespace plait
