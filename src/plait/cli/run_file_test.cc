#include "plait/cli/run_file.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "plait/base/error.h"
#include "plait/io/files.h"

namespace plait {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Command {
  CLI::App app;
  std::string model;
  std::vector<std::string> data;
  double rate = 0;
  int rank = 0;
  bool dry = false;
  Command() {
    app.add_option("MODEL", model);
    app.add_option("--data", data);
    app.add_option("--learning-rate", rate);
    app.add_option("--lora-rank", rank);
    app.add_flag("--dry-run", dry);
  }
  std::vector<std::string> expand(const std::string& toml, std::vector<std::string> more = {}) {
    const std::string path = testing::TempDir() + "run_file_test.toml";
    write_text(path, toml);
    more.insert(more.begin(), path);
    return expand_run_file(app, more);
  }
  std::string refusal(const std::string& toml) {
    try {
      expand(toml);
    } catch (const Error& e) {
      return e.what();
    }
    return "not refused";
  }
};

TEST(RunFile, BecomesFlags) {
  Command c;
  EXPECT_THAT(c.expand("model = 'm'\ndata = ['a b', 'c']\nlearning_rate = 1e-3\ndry_run = true\n"
                       "[lora]\nrank = 8\n"),
              ElementsAre("m", "--data=a b", "--data=c", "--dry-run=true", "--learning-rate=0.001",
                          "--lora-rank=8"));
}

TEST(RunFile, TheCommandLineWins) {
  Command c;
  EXPECT_THAT(
      c.expand("model = 'm'\ndata = ['a', 'b']\nlora_rank = 8\n", {"--data", "x", "--dry-run"}),
      ElementsAre("m", "--lora-rank=8", "--data", "x", "--dry-run"));
  EXPECT_THAT(c.expand("model = 'm'\nlora.rank = 8\n", {"--lora-rank=4"}),
              ElementsAre("m", "--lora-rank=4"));
}

TEST(RunFile, TheLastOfARepeatedFlagWins) {
  Command c;
  let_the_last_win(c.app);
  c.app.parse("m --lora-rank 8 --data a --dry-run --data b --lora-rank 4 --dry-run");
  EXPECT_EQ(c.rank, 4);
  EXPECT_TRUE(c.dry);
  EXPECT_THAT(c.data, ElementsAre("a", "b"));
  Command file;
  let_the_last_win(file.app);
  std::vector<std::string> args =
      file.expand("model = 'm'\nlora_rank = 8\n", {"--lora-rank=4", "--lora-rank", "2"});
  std::reverse(args.begin(), args.end());
  file.app.parse(std::move(args));
  EXPECT_EQ(file.rank, 2);
}

TEST(RunFile, OtherArgumentsPass) {
  Command c;
  EXPECT_THAT(expand_run_file(c.app, {"m", "--data", "x.toml"}),
              ElementsAre("m", "--data", "x.toml"));
}

TEST(RunFile, RefusesWithFileAndLine) {
  Command c;
  EXPECT_THAT(c.refusal("model = 'm'\nlearning_rat = 1\n"),
              HasSubstr("run_file_test.toml:2: unknown key 'learning_rat'; did you mean "
                        "'learning_rate'?"));
  EXPECT_THAT(c.refusal("data = ['a']\n"), HasSubstr("no key 'model'"));
  EXPECT_THAT(c.refusal("model = 'm'\ndata = [[1]]\n"), HasSubstr("toml:2: 'data' is neither"));
  EXPECT_THAT(c.refusal("model = 'm'\nlora_rank = [1, 2]\n"),
              HasSubstr("toml:2: 'lora_rank' is a list of 2; needs one value"));
  EXPECT_THAT(c.refusal("model = \n"), HasSubstr("run_file_test.toml:1:"));
}

}  // namespace
}  // namespace plait
