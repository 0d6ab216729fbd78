// A fine-tune as a user runs it: a base model, an adapter for it, merged, exported, evaluated.
// finetune/run.py does the same with the demo's model and transformers.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "command.h"
#include "plait/base/rng.h"
#include "plait/io/files.h"
#include "plait/io/safetensors.h"
#include "plait/tokens/tokenizer.h"
#include "plait/tokens/tokenizer_files.h"

namespace plait {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The base has seen words in no order; the examples pair each with another.
class Finetune : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new std::string(path_beside(testing::TempDir() + "finetune"));
    fs::create_directories(in("config"));
    write_text(in("config/config.json"), kTinyLlama);
    write_text(in("plan.toml"),
               "mesh = ['dp=2', 'tp=2']\nmicrobatches = 2\n[split]\nT = 'dp'\nH = 'tp'\n"
               "G = 'tp'\nF = 'tp'\nV = 'tp'\n");
    const std::vector<std::string> words = {"oak", "elm", "fir", "ash", "yew", "box", "bay", "fig"};
    std::string text, examples;
    for (uint64_t i = 0; i < 400; ++i)
      text += words[random_bits(5, Stream::test, i) % words.size()] + (i % 3 == 0 ? ".\n" : " ");
    for (size_t i = 0; i < words.size(); ++i)
      examples +=
          json{{"prompt", words[i] + ": "}, {"completion", words[(i * 3 + 1) % 8] + "\n"}}.dump() +
          "\n";
    write_text(in("text.txt"), text);
    write_text(in("examples.jsonl"), examples);
    run({"train", in("config"), "--data", in("text.txt"), "--plan", in("plan.toml"), "--steps",
         "40", "--slots", "4", "--slot-tokens", "16", "--learning-rate", "1e-2", "--out",
         in("base")});
    write_text(in("run.toml"), "model = '" + in("base") + "'\ndata = ['" + in("examples.jsonl") +
                                   "']\nplan = '" + in("plan.toml") +
                                   "'\nheld_out = 0.0\npacking = 'padded'\nslots = 4\n"
                                   "slot_tokens = 16\nsteps = 150\nlearning_rate = 2e-2\n"
                                   "checkpoints = '" +
                                   in("checkpoints") + "'\nout = '" + in("adapter") +
                                   "'\n[lora]\nrank = 8\nalpha = 16\ntargets = ['all-linear']\n");
    run({"train", in("run.toml")});
    run({"merge", in("base"), in("adapter"), in("merged")});
  }
  static void TearDownTestSuite() {
    fs::remove_all(*folder_);
    delete folder_;
  }

  static std::string in(const std::string& name) { return *folder_ + "/" + name; }
  static std::string run(const std::vector<std::string>& args) {
    const CommandResult r = run_plait(args);
    EXPECT_EQ(r.exit_code, 0) << r.out;
    return r.out;
  }
  // The mean loss of the examples' completions.
  static double loss(const std::string& model, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"eval",      in(model), "--data",        in("examples.jsonl"),
                                     "--packing", "padded",  "--slot-tokens", "16",
                                     "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const std::string out = run(args);
    const size_t begin = out.find('{');
    if (begin == std::string::npos) return NAN;
    const json score = json::parse(out.substr(begin));
    EXPECT_EQ(score["tokens"], 32);  // 8 completions of 4 bytes: prompts are masked
    return score["nats_per_token"];
  }

  static std::string* folder_;
};
std::string* Finetune::folder_ = nullptr;

TEST_F(Finetune, LowersTheLossAndMergesToTheSameModel) {
  const double base = loss("base"), tuned = loss("base", {"--adapter", in("adapter")});
  EXPECT_GT(base, 1.0);
  EXPECT_LT(tuned, base / 3);  // not 0: the head is frozen, and the last norm bounds what it says
  EXPECT_NEAR(loss("merged"), tuned, 1e-5);
  EXPECT_NEAR(loss("merged", {"--plan", in("plan.toml")}), tuned, 1e-5);
}

TEST_F(Finetune, ACheckpointExportsAsTheSameAdapter) {
  run({"checkpoint", "export", in("checkpoints"), in("exported")});
  EXPECT_EQ(loss("base", {"--adapter", in("exported")}),
            loss("base", {"--adapter", in("adapter")}));
}

TEST_F(Finetune, AnswersTheExamples) {
  const auto right = [&](std::vector<std::string> args) {
    args.insert(args.begin(), "generate");
    for (const char* a : {"--temperature", "0", "--tokens", "6", "--stop", "\n", "--slot-tokens",
                          "16", "--prompts"})
      args.emplace_back(a);
    args.push_back(in("examples.jsonl"));
    std::istringstream lines(run(args));
    int count = 0, all = 0;
    for (std::string line; std::getline(lines, line); ++all) {
      const json record = json::parse(line);
      if (record["generated"].get<std::string>() + "\n" == record["completion"]) ++count;
    }
    EXPECT_EQ(all, 8);
    return count;
  };
  EXPECT_LE(right({in("base")}), 2);
  EXPECT_EQ(right({in("base"), "--adapter", in("adapter")}), 8);
  EXPECT_EQ(right({in("merged")}), 8);
}

TEST_F(Finetune, WritesLogitsThatGiveTheLoss) {
  const std::string path = in("logits.safetensors");
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{}, {"--plan", in("plan.toml"), "--slots", "4"}}) {
    std::vector<std::string> args = {"--adapter", in("adapter"), "--logits", path};
    args.insert(args.end(), layout.begin(), layout.end());
    const double expected = loss("base", args);
    HostTensors file = SafetensorsFile(path).read_all();
    const HostTensor &logits = file.at("logits"), &learn = file.at("learn");
    ASSERT_EQ(logits.dims, (std::vector<int64_t>{8, 16, 256}));
    ASSERT_EQ(learn.dims, (std::vector<int64_t>{8, 16}));
    double sum = 0;
    int64_t count = 0;
    for (int64_t t = 0; t < 8 * 16; ++t) {
      if (learn.at(t) == 0) continue;
      double total = 0;
      for (int64_t v = 0; v < 256; ++v) total += std::exp(logits.at(t * 256 + v));
      const auto label = static_cast<int64_t>(file.at("labels").at(t));
      sum += std::log(total) - logits.at(t * 256 + label);
      ++count;
    }
    EXPECT_EQ(count, 32);
    EXPECT_NEAR(sum / static_cast<double>(count), expected, 1e-5);
    EXPECT_EQ(file.at("tokens").at(0), 'o');
  }
}

TEST_F(Finetune, ModelsAreSavedWithTheirTokenizer) {
  for (const char* model : {"base", "merged"}) {
    EXPECT_EQ(read_text(in(std::string(model) + "/tokenizer.json"), 1 << 20),
              byte_tokenizer_json());
    EXPECT_EQ(load_tokenizer(in(model))->kind(), "bytes");
  }
}

TEST_F(Finetune, GenerateSaysWhatItNeeds) {
  const auto refusal = [](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"generate", in("base"), "--slot-tokens", "16"};
    args.insert(args.end(), more.begin(), more.end());
    const CommandResult r = run_plait(args);
    EXPECT_NE(r.exit_code, 0) << r.out;
    return r.out;
  };
  EXPECT_NE(refusal({}).find("--prompts FILE"), std::string::npos);
  write_text(in("bad.jsonl"), "{\"prompt\": \"oak: \"}\n{\"text\": \"x\"}\n");
  EXPECT_NE(refusal({"--prompts", in("bad.jsonl")}).find("bad.jsonl:2: expected an object with"),
            std::string::npos);
  write_text(in("bad.jsonl"), "{\"prompt\": \n");
  EXPECT_NE(refusal({"--prompts", in("bad.jsonl")}).find("bad.jsonl:1: "), std::string::npos);
  write_text(in("bad.jsonl"), "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n");
  EXPECT_NE(refusal({"--prompts", in("bad.jsonl")}).find("has no chat template"),
            std::string::npos);
}

}  // namespace
}  // namespace plait
