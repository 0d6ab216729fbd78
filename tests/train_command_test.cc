// `plait train` as a user runs it: what it refuses before it starts, what it keeps when a run ends
// early or is stopped, and what a resumed run may not change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "plait/base/rng.h"
#include "plait/io/files.h"

namespace plait {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class TrainCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = path_beside(testing::TempDir() + "train_command");
    fs::create_directories(folder_);
    std::string text, pairs;
    for (uint64_t i = 0; i < 300; ++i)
      text += std::string(1, static_cast<char>('a' + random_bits(7, Stream::test, i) % 26)) +
              (i % 7 == 0 ? "\n" : "e");
    for (int i = 0; i < 12; ++i)
      pairs += json{{"prompt", std::string(1, static_cast<char>('a' + i)) + ":"},
                    {"chosen", "yes"},
                    {"rejected", "no"}}
                   .dump() +
               "\n";
    fs::create_directories(in("config"));
    write_text(in("config/config.json"), kTinyLlama);
    write_text(in("text.txt"), text);
    write_text(in("pairs.jsonl"), pairs);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string in(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> train(const std::string& model, const std::string& data,
                                 const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"train", model, "--data", in(data)};
    for (const char* flag : {"--slots", "--slot-tokens"})
      if (std::find(more.begin(), more.end(), flag) == more.end()) {
        args.emplace_back(flag);
        args.emplace_back(flag == std::string("--slots") ? "2" : "12");
      }
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  std::string text(const std::vector<std::string>& more, int code = 0) const {
    const CommandResult r = run_plait(train(in("config"), "text.txt", more));
    EXPECT_EQ(r.exit_code, code) << r.out;
    return r.out;
  }
  std::vector<json> lines(const std::string& name) const {
    std::ifstream file(in(name));
    std::vector<json> result;
    for (std::string line; std::getline(file, line);) result.push_back(json::parse(line));
    return result;
  }

  std::string folder_;
};

// The loss of each step in f32 and in bf16; what is saved is f32 either way.
TEST_F(TrainCommandTest, Bf16TrainsBesideF32) {
  const auto losses = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"--steps", "12",        "--learning-rate",
                                     "1e-2",    "--metrics", in("metrics.jsonl")};
    args.insert(args.end(), more.begin(), more.end());
    text(args);
    std::vector<double> found;
    for (const json& line : lines("metrics.jsonl"))
      if (line.contains("loss")) found.push_back(line["loss"]);
    fs::remove(in("metrics.jsonl"));
    return found;
  };
  const std::vector<double> f32 = losses({"--threads", "1"});
  ASSERT_EQ(f32.size(), 12u);
  EXPECT_EQ(losses({"--threads", "2"}), f32);  // threads change no bit
  const std::vector<double> bf16 = losses({"--dtype", "bf16", "--out", in("bf16")});
  ASSERT_EQ(bf16.size(), 12u);
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(bf16[i], f32[i], 0.02) << i;
  EXPECT_LT(bf16.back(), bf16.front() - 0.5);
  EXPECT_NE(bf16, f32);
  const CommandResult on =
      run_plait(train(in("bf16"), "text.txt", {"--dtype", "bf16", "--steps", "2"}));
  EXPECT_EQ(on.exit_code, 0) << on.out;
  EXPECT_THAT(text({"--dtype", "f16"}, 2), HasSubstr("bf16"));
}

TEST_F(TrainCommandTest, FlagsThatWouldDoNothingAreRefused) {
  EXPECT_THAT(text({"--lora-alpha", "8"}, 1), HasSubstr("--lora-alpha: no adapter is trained"));
  EXPECT_THAT(text({"--beta", "0.2"}, 1), HasSubstr("no preference pairs"));
  EXPECT_THAT(text({"--json"}, 1), HasSubstr("--dry-run"));
  EXPECT_THAT(text({"--slots", "1", "--noise-every", "2"}, 1), HasSubstr("one slot only"));
  EXPECT_THAT(text({"--trained", "*nothing*"}, 1), HasSubstr("matches no parameter"));
  EXPECT_THAT(text({"--no-decay", "*nothing*"}, 1), HasSubstr("*nothing*"));
  write_text(in("run.toml"), "model = '" + in("config") + "'\ndata = ['" + in("text.txt") +
                                 "']\n[lora]\nalpha = 8\ntargets = ['q_proj']\n");
  const CommandResult r = run_plait({"train", in("run.toml"), "--steps", "1"});
  EXPECT_EQ(r.exit_code, 1) << r.out;
  EXPECT_THAT(r.out, HasSubstr("set --lora-rank"));
}

TEST_F(TrainCommandTest, ADryRunRefusesWhatTheRunWould) {
  const auto dry = [&](std::vector<std::string> more) {
    more.emplace_back("--dry-run");
    const CommandResult r = run_plait(train(in("config"), "text.txt", more));
    EXPECT_NE(r.exit_code, 0) << r.out;
    return r.out;
  };
  EXPECT_THAT(dry({"--learning-rate", "nan"}), HasSubstr("found 'nan', expected a number"));
  EXPECT_THAT(dry({"--metrics", in("none/m.jsonl")}), HasSubstr("there is no folder"));
  EXPECT_THAT(dry({"--checkpoints", in("text.txt")}), HasSubstr("is a file"));
  write_text(in("precious.txt"), "mine\n");
  EXPECT_THAT(dry({"--metrics", in("precious.txt")}), HasSubstr("a file is there already"));
  text({"--steps", "2", "--checkpoints", in("ck")});
  EXPECT_THAT(dry({"--checkpoints", in("ck")}), HasSubstr("add --resume"));
  EXPECT_THAT(text({"--steps", "4", "--checkpoints", in("ck"), "--resume", "--dry-run"}),
              HasSubstr("would go on after step 2"));
  EXPECT_EQ(read_text(in("precious.txt"), 100), "mine\n");
}

TEST_F(TrainCommandTest, OutHoldsTheModelThatValidatedBest) {
  // A rate this large makes the validation loss rise soon.
  const std::vector<std::string> args = {
      "--steps",         "200",         "--eval-every", "2",        "--patience",    "3",
      "--learning-rate", "0.05",        "--schedule",   "constant", "--held-out",    "0.3",
      "--metrics",       in("m.jsonl"), "--out",        in("out"),  "--checkpoints", in("ck")};
  const std::string said = text(args);
  EXPECT_THAT(said, HasSubstr("ended early"));
  EXPECT_THAT(said, HasSubstr("the best"));
  double best = 1e9;
  for (const json& line : lines("m.jsonl"))
    if (line.contains("validation_loss"))
      best = std::min(best, line["validation_loss"].get<double>());
  const auto last = lines("m.jsonl").back();
  EXPECT_LT(best, last["validation_loss"].get<double>());
  const std::string saved = read_text(in("out/model.safetensors"), 1 << 24);
  // What is in the folder has that loss: no step is taken, the validation is of the same part.
  const CommandResult again =
      run_plait(train(in("out"), "text.txt",
                      {"--steps", "1", "--learning-rate", "1e-30", "--held-out", "0.3",
                       "--eval-every", "1", "--metrics", in("again.jsonl")}));
  EXPECT_EQ(again.exit_code, 0) << again.out;
  EXPECT_NEAR(lines("again.jsonl").back()["validation_loss"].get<double>(), best, 1e-6);
  // A run that is over stays over.
  std::vector<std::string> resumed = args;
  resumed.emplace_back("--resume");
  EXPECT_THAT(text(resumed), HasSubstr("ended early"));
  EXPECT_EQ(read_text(in("out/model.safetensors"), 1 << 24), saved);
  EXPECT_EQ(lines("m.jsonl").back()["step"], last["step"]);
}

TEST_F(TrainCommandTest, AStoppedRunSavesWhereItCan) {
  const std::vector<std::string> more = {"--steps", "1000000", "--out", in("out")};
  const CommandResult r =
      run_plait(train(in("config"), "text.txt", more), Kill{SIGINT, 100, "step"});
  EXPECT_EQ(r.exit_code, 128 + SIGINT) << r.out;
  EXPECT_THAT(r.out, HasSubstr("saved in"));
  EXPECT_TRUE(file_exists(in("out/model.safetensors")));
  EXPECT_THAT(text({"--steps", "1"}), HasSubstr("nothing will be saved"));
}

TEST_F(TrainCommandTest, PreferencesGoOnWithTheModelTheyBeganWith) {
  text({"--steps", "2", "--out", in("start")});
  const auto tune = [&](const std::string& steps, const std::string& more) {
    std::vector<std::string> args = {"--steps",       steps, "--checkpoints", in("ck"),
                                     "--slot-tokens", "24",  "--held-out",    "0"};
    if (!more.empty()) args.push_back(more);
    return run_plait(train(in("start"), "pairs.jsonl", args));
  };
  const CommandResult first = tune("2", "");
  ASSERT_EQ(first.exit_code, 0) << first.out;
  const CommandResult same = tune("3", "--resume");
  EXPECT_EQ(same.exit_code, 0) << same.out;
  // The starting model is replaced: its losses would be another reference.
  text({"--steps", "3", "--seed", "2", "--out", in("start")});
  const CommandResult other = tune("4", "--resume");
  EXPECT_EQ(other.exit_code, 1) << other.out;
  EXPECT_THAT(other.out, HasSubstr("reference_model"));
}

TEST_F(TrainCommandTest, AResumedRunSaysWhatChanged) {
  text({"--steps", "2", "--checkpoints", in("ck")});
  EXPECT_THAT(text({"--steps", "3", "--checkpoints", in("ck"), "--resume", "--beta2", "0.99"}),
              HasSubstr("the optimizer's settings were"));
  EXPECT_THAT(text({"--steps", "1", "--checkpoints", in("ck"), "--resume"}, 1),
              HasSubstr("nothing to train"));
}

TEST_F(TrainCommandTest, TrainsTheNamedParametersOnly) {
  const auto tensors = [&](const std::string& folder) {
    return read_text(in(folder + "/model.safetensors"), 1 << 24);
  };
  text({"--steps", "1", "--learning-rate", "1e-30", "--out", in("before")});
  const CommandResult r = run_plait(
      train(in("before"), "text.txt",
            {"--steps", "3", "--trained", "*norm*", "--out", in("after"), "--no-decay", "*norm*"}));
  ASSERT_EQ(r.exit_code, 0) << r.out;
  const std::string a = tensors("before"), b = tensors("after");
  ASSERT_EQ(a.size(), b.size());
  size_t changed = 0;
  for (size_t i = 0; i < a.size(); ++i) changed += a[i] != b[i] ? 1 : 0;
  EXPECT_GT(changed, 0u);
  EXPECT_LE(changed, 5u * 32u * 4u);  // five norms of 32 in f32
}

}  // namespace
}  // namespace plait
