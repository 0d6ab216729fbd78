// A run that is killed at random moments, and resumed each time, ends like one that was not.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "command.h"
#include "plait/base/rng.h"
#include "plait/io/checkpoint.h"
#include "plait/io/files.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class KilledRun {
 public:
  explicit KilledRun(const std::string& name) : folder_(path_beside(testing::TempDir() + name)) {
    fs::create_directories(folder_);
    std::string text;
    for (int i = 0; i < 400; ++i)  // llama-tiny knows 67 bytes
      text += static_cast<char>(32 + random_bits(7, Stream::test, i) % 35);
    write_text(folder_ + "/text.txt", text);
    write_text(folder_ + "/plan.toml", "mesh = ['dp=2']\nmicrobatches = 2\n[split]\nT = 'dp'\n");
  }
  ~KilledRun() { fs::remove_all(folder_); }

  std::vector<std::string> arguments() const {
    return {"train",
            "llama-tiny",
            "--data",
            folder_ + "/text.txt",
            "--plan",
            folder_ + "/plan.toml",
            "--slots",
            "2",
            "--slot-tokens",
            "8",
            "--steps",
            "60",
            "--checkpoints",
            checkpoints(),
            "--checkpoint-every",
            "3",
            "--keep-last",
            "2",
            "--resume",
            "--eval-every",
            "20",
            "--metrics",
            folder_ + "/metrics.jsonl",
            "--noise-every",
            "7",
            "--out",
            folder_ + "/out",
            "--held-out",
            "0.2"};
  }
  std::string checkpoints() const { return folder_ + "/checkpoints"; }
  std::string model() const { return read_text(folder_ + "/out/model.safetensors", 1 << 24); }

  // step -> what must be equal in every run: all but times.
  std::vector<std::string> metrics() const {
    std::vector<std::string> lines;
    std::istringstream text(read_text(folder_ + "/metrics.jsonl", 1 << 24));
    for (std::string line; std::getline(text, line);) {
      auto json = nlohmann::ordered_json::parse(line);
      json.erase("seconds");
      json.erase("tokens_per_second");
      lines.push_back(json.dump());
    }
    return lines;
  }

 private:
  std::string folder_;
};

TEST(SlowKill, FiftyKillsLeaveNoTrace) {
  KilledRun undisturbed("undisturbed"), killed("killed");
  const CommandResult whole = run_plait(undisturbed.arguments());
  ASSERT_EQ(whole.exit_code, 0) << whole.out;
  ASSERT_EQ(undisturbed.metrics().size(), 60u);

  int kills = 0, resumed_at = 0;
  for (uint64_t i = 0; kills < 50 && i < 400; ++i) {
    const int after = 20 + static_cast<int>(random_bits(3, Stream::test, i) % 500);
    const CommandResult r = run_plait(killed.arguments(), Kill{SIGKILL, after, ""});
    ASSERT_TRUE(r.exit_code == 0 || r.exit_code == 128 + SIGKILL) << r.out;
    if (r.exit_code != 0) ++kills;
    if (!fs::exists(killed.checkpoints())) continue;
    for (const auto& entry : fs::directory_iterator(killed.checkpoints())) {
      // Whatever has a checkpoint's name is whole.
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("step-")) continue;
      const CommandResult look =
          run_plait({"checkpoint", "inspect", killed.checkpoints(), "--verify"});
      ASSERT_EQ(look.exit_code, 0) << look.out;
      break;
    }
    if (r.exit_code != 0) continue;
    // It was done before it was to be killed: the next rounds start anew.
    ++resumed_at;
    ASSERT_EQ(killed.model(), undisturbed.model());
    ASSERT_EQ(killed.metrics(), undisturbed.metrics());
    fs::remove_all(killed.checkpoints());
  }
  EXPECT_EQ(kills, 50);
  EXPECT_GT(resumed_at, 0);
  const CommandResult last = run_plait(killed.arguments());
  ASSERT_EQ(last.exit_code, 0) << last.out;
  EXPECT_EQ(killed.model(), undisturbed.model());
  EXPECT_EQ(killed.metrics(), undisturbed.metrics());
}

TEST(Kill, TheFirstSignalSavesAndEnds) {
  KilledRun run("signal");
  std::vector<std::string> slow = run.arguments();
  const auto steps = std::find(slow.begin(), slow.end(), "60");
  ASSERT_NE(steps, slow.end());
  *steps = "100000";
  const CommandResult r = run_plait(slow, Kill{SIGTERM, 100, "step"});
  EXPECT_EQ(r.exit_code, 128 + SIGTERM) << r.out;
  EXPECT_NE(r.out.find("saved"), std::string::npos) << r.out;
  const CommandResult look = run_plait({"checkpoint", "inspect", run.checkpoints(), "--verify"});
  EXPECT_EQ(look.exit_code, 0) << look.out;
}

}  // namespace
}  // namespace plait
