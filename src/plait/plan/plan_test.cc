#include "plait/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "plait/base/glob.h"

namespace plait {
namespace {

const Mesh kMesh({{"pp", 2}, {"dp", 3}, {"tp", 2}}, "pp");

TEST(Mesh, RanksCoordinatesAndGroups) {
  EXPECT_EQ(kMesh.ranks(), 12);
  for (int r = 0; r < 12; ++r)
    EXPECT_EQ(r, 6 * kMesh.coordinate(r, "pp") + 2 * kMesh.coordinate(r, "dp") +
                     kMesh.coordinate(r, "tp"));
  EXPECT_EQ(kMesh.group(7, "dp"), (std::vector<int>{7, 9, 11}));
  EXPECT_EQ(kMesh.neighbour(7, "pp", 0), 1);
  EXPECT_THROW(Mesh({{"a", 2}, {"a", 2}}, ""), Error);
  EXPECT_THROW(Mesh({{"a", 0}}, ""), Error);
  EXPECT_THROW(Mesh({{"a", 2}}, "pp"), Error);
  EXPECT_THROW(Mesh({{"a", 1 << 20}, {"b", 1 << 20}}, ""), Error);
}

// Shards of all ranks cover the tensor, and replicas exactly as often as they should.
TEST(Placement, ShardsCoverTheTensorOnce) {
  const TensorType type{Dtype::f64, {{"T", 35, 5}, {"V", 11, 1}}};
  const std::vector<std::pair<Placement, int>> cases = {
      {{{{{"dp"}, {}}, {}}, {}, {}}, 4},         {{{{{"dp", "tp"}, {}}, {}}, {}, {}}, 2},
      {{{{{"tp", "dp"}, {}}, {}}, {}, {}}, 2},   {{{{{"tp"}, {}}, {{"dp"}, {}}}, {}, {}}, 2},
      {{{{}, {{"dp"}, {11, 0, 0}}}, {}, {}}, 4}, {{{{}, {{"dp"}, {4, 1, 6}}}, {}, {}}, 4},
  };
  for (const auto& [placement, copies] : cases) {
    check_placement("test", type, placement, kMesh);
    std::vector<int> seen(35 * 11, 0);
    for (int r = 0; r < 12; ++r) {
      const Box box = shard(type, placement, kMesh, r);
      EXPECT_EQ(box.begin[0] % 5, 0) << "a unit is cut";
      for (int64_t i = 0; i < box.size[0]; ++i)
        for (int64_t j = 0; j < box.size[1]; ++j)
          ++seen[static_cast<size_t>((box.begin[0] + i) * 11 + box.begin[1] + j)];
    }
    for (const int n : seen) EXPECT_EQ(n, copies) << to_string(placement);
  }
}

TEST(Placement, PrintsAndParsesBack) {
  for (const char* text : {"[dp, -]", "[dp.tp, -] sum(pp)", "[tp(40 27), -] lse(dp) on 0 3", "[]",
                           "[-] sum(dp) max(tp)"}) {
    Lexer in(text, "test");
    const size_t rank =
        std::string(text) == "[]" ? 0 : std::count(text, text + std::strlen(text), ',') + 1;
    EXPECT_EQ(to_string(parse_placement(in, rank)), text);
  }
}

TEST(Placement, ReshardStepsLeadFromOneToTheOther) {
  std::vector<Placement> all;
  const std::vector<std::vector<std::string>> splits = {
      {}, {"dp"}, {"tp"}, {"dp", "tp"}, {"tp", "dp"}};
  for (const auto& a : splits)
    for (const auto& b : splits) {
      Placement p{{{a, {}}, {b, {}}}, {}, {}};
      bool twice = false;
      for (const auto& axis : a) twice = twice || std::count(b.begin(), b.end(), axis) > 0;
      if (twice) continue;
      all.push_back(p);
      for (const char* axis : {"dp", "tp"})
        if (!p.is_split(axis)) {
          Placement q = p;
          q.pending.push_back({axis, Reduce::sum});
          all.push_back(q);
        }
    }
  ASSERT_GT(all.size(), 15u);
  for (const Placement& from : all)
    for (const Placement& to : all) {
      const bool possible = to.pending.empty() || to.pending == from.pending;
      if (!possible) {
        EXPECT_THROW(reshard_steps(from, to), Error);
        continue;
      }
      Placement now = from;
      for (const Comm& step : reshard_steps(from, to)) now = after(now, step, to.dims[step.dim]);
      EXPECT_EQ(now, to) << to_string(from) << " -> " << to_string(to);
    }
  // A pending sum that ends up split is scattered, not reduced and cut.
  const Placement pending{{{}, {}}, {{"tp", Reduce::sum}}, {}}, split{{{{"tp"}, {}}, {}}, {}, {}};
  ASSERT_EQ(reshard_steps(pending, split).size(), 1u);
  EXPECT_EQ(reshard_steps(pending, split)[0].kind, Comm::Kind::reduce_scatter);
}

TEST(Plan, PrintsAndParsesBack) {
  const char* text = R"(
mesh = ["pp=2", "dp=2", "tp=2"]
microbatches = 4
recompute = "selective"
[split]
T = ["dp", "tp"]
V = { axes = "tp", sizes = [40, 27] }
[pipeline]
axis = "pp"
schedule = "gpipe"
blocks = [3, 3]
[place]
"z.*" = ["tp", ""]
"*.o_proj.weight" = ["", ["dp", "tp"]]
)";
  const Plan plan = parse_plan(text, "test");
  EXPECT_EQ(plan.mesh.ranks(), 8);
  EXPECT_EQ(plan.place[0].first, "z.*") << "[place] keeps the order of the file";
  EXPECT_EQ(plan.recompute, Recompute::selective);
  EXPECT_EQ(parse_plan(print_plan(plan), "printed"), plan);
  EXPECT_EQ(parse_plan("recompute = \"none\"", "test"), Plan());
}

TEST(Plan, BadFilesAreRefusedWithLineAndReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"mesh = [\"tp\"]", "test:1: axis 'tp'; expected a name and a size"},
      {"mesh = [\"tp=0\"]", "expected a name and a size"},
      {"mesh = [\"tp=99999999999\"]", "expected a name and a size"},
      {"mesh = \"tp=2\"", "mesh must be a list"},
      {"\nmicrobatches = 0", "test:2: microbatches is 0; needs 1"},
      {"microbatches = 1.5", "must be a whole number"},
      {"recompute = \"some\"", "test:1: recompute is 'some'; known are none, full, selective"},
      {"recompute = true", "recompute must be a string"},
      {"[split]\nT = 3", "split.T must be a string"},
      {"[split]\nT = { axis = \"dp\" }", "unknown key 'axis'"},
      {"[pipeline]\nstages = 2", "unknown key 'pipeline.stages'"},
      {"[pipeline]\naxis = \"pp\"", "pipeline axis 'pp' is not an axis of the mesh"},
      {"mesh = [", "test:1"},
  };
  for (const auto& [text, expected] : cases) try {
      parse_plan(text, "test");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(expected), std::string::npos) << e.what();
    }
  EXPECT_THROW(load_plan("/nonexistent.toml"), Error);
}

TEST(Plan, Globs) {
  EXPECT_TRUE(glob_match("*.o_proj.*", "model.layers.0.o_proj.weight"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(glob_match("a*b", "aXbc"));
  EXPECT_FALSE(glob_match("", "a"));
}

}  // namespace
}  // namespace plait
