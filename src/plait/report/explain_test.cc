#include "plait/report/explain.h"

#include <gmock/gmock.h>

#include <map>
#include <sstream>

#include "plait/model/families.h"
#include "plait/report/table.h"

namespace plait {
namespace {

Plan plan(const std::string& mesh) {
  return parse_plan("mesh = " + mesh +
                        "\nmicrobatches = 3\n[pipeline]\naxis = \"pp\"\n[split]\nT = \"dp\"\n"
                        "H = \"tp\"\nG = \"tp\"\nF = \"tp\"\nV = \"tp\"\n",
                    "test");
}

size_t widest(const std::string& text) {
  size_t width = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) width = std::max(width, line.size());
  return width;
}

TEST(Explain, SaysWhatAxesBlocksAndRanksDo) {
  const Model model = load_model("llama-tiny", {4, 16}, Head::loss);
  const Plan p = plan(R"(["pp=2", "dp=2", "tp=2"])");
  const Lowered lowered = lower(model, p);
  const VerifyReport report = verify(lowered.programs);
  const std::string text = explain(model, p, lowered, report);
  EXPECT_LE(widest(text), kColumns) << text;
  for (const char* words : {"pp=2  pipeline", "dp=2  data", "splits feed-forward (F)", "all_reduce",
                            "reduce", "F forward", "0 1 2 3", "peak live", "W2"})
    EXPECT_THAT(text, testing::HasSubstr(words));
}

TEST(Explain, ListsTheStatesOfTheOptimizer) {
  const Model model = load_model("llama-tiny", {4, 16}, Head::loss);
  LowerOptions options;
  for (const auto& [name, kinds] :
       std::map<std::string, std::vector<std::string>>{{"adamw", {"param", "m", "v", "loss"}},
                                                       {"adafactor", {"param", "row", "col", "v"}},
                                                       {"muon", {"param", "momentum", "m", "v"}},
                                                       {"none", {"param", "grad_sum_squares"}}}) {
    options.optimizer.name = name;
    const Lowered l = lower(model, plan(R"(["pp=1", "dp=2", "tp=2"])"), options);
    const std::string text = explain_states(l.programs);
    for (const std::string& kind : kinds)
      EXPECT_THAT(text, testing::ContainsRegex("    " + kind + " +[0-9]")) << name;
    EXPECT_EQ(text.find("momentum") != std::string::npos, name == "muon") << text;
  }
}

TEST(Explain, NotesIdleAxesAndNamesLettersOfTheModel) {
  const Model model = load_model("gpt2-tiny", {1, 16}, Head::loss);
  const auto explained = [&](const std::string& pipeline) {
    const Plan p = parse_plan(
        "mesh = [\"pp=2\", \"zz=2\", \"dp=2\", \"tp=2\"]\n[split]\nT = \"dp\"\n"
        "H = \"tp\"\nG = \"tp\"\nE = \"zz\"\n" +
            pipeline,
        "test");
    const Lowered lowered = lower(model, p);
    const VerifyReport report = verify(lowered.programs);
    const std::string mesh = explain_mesh(model, p, lowered);
    EXPECT_THAT(mesh, testing::HasSubstr("zz=2  splits nothing"));
    EXPECT_THAT(mesh,
                testing::HasSubstr("tensor: splits key/value heads (G) and heads (H) inside"));
    const std::vector<std::string> found = notes(lowered.programs, report);
    EXPECT_LE(widest(explain_notes(found)), kColumns);
    EXPECT_THAT(explain(model, p, lowered, report), testing::EndsWith(explain_notes(found)));
    return found;
  };
  using testing::StartsWith;
  const std::string same = " splits nothing: its 2 ranks repeat the same work; name it in [split]";
  EXPECT_THAT(explained(""), testing::ElementsAre("axis 'pp'" + same + ", or as pipeline.axis",
                                                  "axis 'zz'" + same + ", or as pipeline.axis",
                                                  StartsWith("no tokens for ranks 2 3 6 7 10 ")));
  EXPECT_THAT(
      explained("[pipeline]\naxis = \"pp\"\n"),
      testing::ElementsAre("axis 'zz'" + same, StartsWith("no tokens for ranks 2 3 6 7 10 ")));
  EXPECT_EQ(explain_notes({}), "");
}

TEST(Explain, OneRankSendsNothing) {
  const Model model = load_model("gpt2-tiny", {1, 16}, Head::loss);
  const Lowered lowered = lower(model, one_rank_plan(2));
  EXPECT_EQ(explain_traffic(lowered.programs), "  nothing is sent\n");
}

TEST(Timeline, FillsThePipelineAndCountsTheBubble) {
  const auto starts = start_ticks(make_schedule("gpipe", 2, 2));
  EXPECT_EQ(starts[0], (std::vector<int>{0, 1, 4, 5, 6, 7}));
  EXPECT_EQ(starts[1], (std::vector<int>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(explain_schedule(make_schedule("gpipe", 2, 2)),
            "    pipeline rank 0  F0 F1 .  .  B0 W0 B1 W1\n"
            "    pipeline rank 1  .  F0 F1 B0 W0 B1 W1 .\n"
            "    idle 25 % if every phase took the same time\n");
}

TEST(Timeline, CutsWhatIsTooWide) {
  const std::string text = explain_schedule(make_schedule("1f1b", 20, 64));
  EXPECT_LE(widest(text), kColumns);
  EXPECT_THAT(text, testing::HasSubstr("ticks are shown"));
  EXPECT_THAT(text, testing::HasSubstr("of 20 pipeline ranks"));
}

}  // namespace
}  // namespace plait
