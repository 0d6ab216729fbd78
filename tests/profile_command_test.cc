// `plait train --profile` and `--trace` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "command.h"
#include "plait/base/rng.h"
#include "plait/io/files.h"
#include "plait/io/json.h"

namespace plait {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class ProfileCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = path_beside(testing::TempDir() + "profile_command");
    fs::create_directories(in("config"));
    std::string text;
    for (uint64_t i = 0; i < 2000; ++i)
      text += static_cast<char>('a' + random_bits(7, Stream::test, i) % 26);
    write_text(in("config/config.json"), kTinyLlama);
    write_text(in("text.txt"), text);
    write_text(in("plan.toml"),
               "mesh = [\"pp=2\", \"tp=2\"]\nmicrobatches = 2\n[pipeline]\naxis = \"pp\"\n[split]\n"
               "H = \"tp\"\nG = \"tp\"\nF = \"tp\"\nV = \"tp\"\n");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string in(const std::string& name) const { return folder_ + "/" + name; }
  CommandResult run(const std::vector<std::string>& more, std::optional<Kill> kill = {}) const {
    std::vector<std::string> args = {"train",   in("config"), "--data",        in("text.txt"),
                                     "--slots", "2",          "--slot-tokens", "12"};
    args.insert(args.end(), more.begin(), more.end());
    return run_plait(args, kill);
  }
  std::string text(const std::vector<std::string>& more, int code = 0) const {
    const CommandResult r = run(more);
    EXPECT_EQ(r.exit_code, code) << r.out;
    return r.out;
  }
  json file(const std::string& name) const {
    return parse_json(read_text(in(name), 1 << 26), name, 10, 1000);
  }

  std::string folder_;
};

TEST_F(ProfileCommandTest, PrintsTheLastSteps) {
  const std::string said = text({"--steps", "9", "--profile", "--profile-json", in("p.json")});
  EXPECT_THAT(said, testing::ContainsRegex("1 rank x [0-9]+ thread"));
  for (const char* words : {"this machine with", "Mean of steps 5 to 9", "of limit", "gap ms",
                            "rms_norm", "attention_grad", "adamw", "executor", "step"})
    EXPECT_THAT(said, HasSubstr(words));
  const json p = file("p.json");
  EXPECT_EQ(p["steps"], (std::vector<int>{5, 6, 7, 8, 9}));
  double sum = p["executor_seconds"].get<double>() + p["idle_seconds"].get<double>() +
               p["driver_seconds"].get<double>();
  for (const json& row : p["rows"]) sum += row["seconds_a_rank"].get<double>();
  EXPECT_NEAR(sum, p["step_seconds"].get<double>(), 1e-3 * p["step_seconds"].get<double>());
  EXPECT_THAT(text({"--steps", "3", "--profile", "--profile-shapes", "--profile-steps", "1",
                    "--profile-json", in("p.json")}),
              HasSubstr("Step 3:"));
  EXPECT_TRUE(file("p.json")["rows"][0].contains("shapes"));
  EXPECT_THAT(text({"--steps", "3", "--profile"}), HasSubstr("Mean of steps 2 to 3"));
}

TEST_F(ProfileCommandTest, TracesTheLastStepOfEveryRank) {
  const std::string said =
      text({"--plan", in("plan.toml"), "--steps", "3", "--trace", in("t.json"), "--profile"});
  EXPECT_THAT(said, HasSubstr("step 3 is traced"));
  EXPECT_THAT(said, HasSubstr("4 ranks"));
  EXPECT_THAT(said, HasSubstr("all_reduce, waiting"));
  const json t = file("t.json");
  EXPECT_EQ(t["otherData"]["step"], 3);
  std::set<int> ranks;
  std::set<std::string> names;
  for (const json& e : t["traceEvents"]) {
    ranks.insert(e["pid"].get<int>());
    names.insert(e["name"].get<std::string>());
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 3}));
  for (const char* name : {"F s0 m0 layers.0", "matmul", "all_reduce", "send", "recv"})
    EXPECT_TRUE(names.contains(name)) << name;
  // An older trace is replaced; also of a run of one step.
  text({"--steps", "1", "--trace", in("t.json")});
  EXPECT_EQ(file("t.json")["otherData"]["step"], 1);
}

TEST_F(ProfileCommandTest, RefusesBeforeTraining) {
  EXPECT_THAT(text({"--steps", "1", "--profile"}, 1), HasSubstr("all warm-up"));
  EXPECT_THAT(text({"--steps", "1", "--profile", "--dry-run"}, 1), HasSubstr("--steps 2"));
  EXPECT_THAT(text({"--profile-shapes"}, 1), HasSubstr("add --profile"));
  EXPECT_THAT(text({"--profile-steps", "3", "--trace", in("t.json")}, 1), HasSubstr("add --prof"));
  EXPECT_THAT(text({"--trace", in("none/t.json")}, 1), HasSubstr("there is no folder"));
  EXPECT_THAT(text({"--trace", in("config")}, 1), HasSubstr("a folder"));
  EXPECT_THAT(text({"--trace", in("text.txt"), "--dry-run"}, 1), HasSubstr("another file"));
  EXPECT_THAT(text({"--profile-json", in("text.txt")}, 1), HasSubstr("another file"));
  EXPECT_THAT(text({"--trace", "/dev/null"}, 1), HasSubstr("not a regular file"));
  EXPECT_THAT(text({"--trace", in("x.json"), "--metrics", in("x.json")}, 1), HasSubstr("are both"));
  if (geteuid() != 0) {
    fs::create_directory(in("closed"));
    fs::permissions(in("closed"), fs::perms::owner_read | fs::perms::owner_exec);
    EXPECT_THAT(text({"--trace", in("closed/t.json")}, 1), HasSubstr("cannot create"));
  }
  EXPECT_FALSE(fs::exists(in("t.json")));
  const std::string dry = text({"--steps", "9", "--profile", "--trace", in("t.json"), "--dry-run"});
  EXPECT_THAT(dry, HasSubstr("would profile steps 5 to 9"));
  EXPECT_THAT(dry, HasSubstr("would trace step 9"));
  EXPECT_FALSE(fs::exists(in("t.json")));
}

TEST_F(ProfileCommandTest, AResumedRunProfilesItsOwnSteps) {
  const std::vector<std::string> saved = {"--checkpoints", in("ck")};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), saved.begin(), saved.end());
    return text(more);
  };
  with({"--steps", "4"});
  const std::string seven = with({"--steps", "7", "--resume", "--profile"});
  EXPECT_THAT(seven, HasSubstr("Mean of steps 6 to 7"));
  const std::string one = with({"--steps", "8", "--resume", "--profile", "--trace", in("t.json")});
  EXPECT_THAT(one, HasSubstr("one step is left"));
  EXPECT_THAT(one, HasSubstr("step 8 is traced"));
  EXPECT_THAT(one, Not(HasSubstr("gap ms")));
  const std::string none = with({"--steps", "8", "--resume", "--profile", "--trace", in("t.json")});
  EXPECT_THAT(none, HasSubstr("--profile: no step is left"));
  EXPECT_THAT(none, HasSubstr("--trace: no step is left"));
}

TEST_F(ProfileCommandTest, ARunThatEndsEarlySaysSoOrProfilesWhatItRan) {
  const CommandResult stopped = run({"--steps", "1000000", "--profile", "--trace", in("t.json")},
                                    Kill{SIGINT, 0, "tokens/s"});
  EXPECT_EQ(stopped.exit_code, 130) << stopped.out;
  EXPECT_THAT(stopped.out, HasSubstr("ended before steps 999996 to 1000000"));
  EXPECT_FALSE(fs::exists(in("t.json")));
  const std::string early =
      text({"--steps", "500", "--eval-every", "2", "--patience", "2", "--held-out", "0.3",
            "--schedule", "constant", "--learning-rate", "0.05", "--profile"});
  EXPECT_THAT(early, HasSubstr("ended early"));
  EXPECT_THAT(early, HasSubstr("Mean of steps"));
}

TEST_F(ProfileCommandTest, FlagsAreKeysOfARunFile) {
  write_text(in("run.toml"), "model = '" + in("config") + "'\ndata = ['" + in("text.txt") +
                                 "']\nslots = 2\nslot_tokens = 12\nsteps = 3\nprofile = true\n"
                                 "trace = '" +
                                 in("t.json") + "'\nprofile_steps = 1\n");
  const CommandResult r = run_plait({"train", in("run.toml")});
  EXPECT_EQ(r.exit_code, 0) << r.out;
  EXPECT_THAT(r.out, HasSubstr("Step 3:"));
  EXPECT_EQ(file("t.json")["otherData"]["step"], 3);
}

}  // namespace
}  // namespace plait
