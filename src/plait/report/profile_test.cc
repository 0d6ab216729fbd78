#include "plait/report/profile.h"

#include <gmock/gmock.h>

#include <set>
#include <sstream>

#include "plait/io/json.h"
#include "plait/model/families.h"
#include "plait/program/lower.h"
#include "plait/report/table.h"
#include "plait/report/trace.h"

namespace plait {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Programs programs(const std::string& mesh, int64_t microbatches = 2) {
  const Model model = load_model("llama-tiny", {4, 16}, Head::loss);
  if (mesh.empty()) return lower(model, one_rank_plan(microbatches)).programs;
  const Plan plan = parse_plan("mesh = " + mesh +
                                   "\nmicrobatches = 2\n[pipeline]\naxis = \"pp\"\n[split]\n"
                                   "T = \"dp\"\nH = \"tp\"\nG = \"tp\"\nF = \"tp\"\nV = \"tp\"\n",
                               "test");
  return lower(model, plan).programs;
}

Limits round_limits() {
  Limits limits;
  limits.flops_per_second = 1e9;
  limits.bytes_per_second = 1e9;
  return limits;
}

// Every action takes 1000 ns; a rank begins 500 ns after the one before it.
StepTimes even_times(const Programs& p, int64_t step = 7) {
  StepTimes s;
  s.step = step;
  for (size_t r = 0; r < p.ranks.size(); ++r) {
    std::vector<ActionTime>& times = s.actions.emplace_back();
    int64_t now = 1'000'000 + static_cast<int64_t>(r) * 500;
    for (size_t i = 0; i < p.ranks[r].actions.size(); ++i, now += 1000)
      times.push_back({now, now + 1000});
    s.session_seconds =
        std::max(s.session_seconds, static_cast<double>(times.size()) * 1e-6 + 1e-6);
  }
  s.seconds = s.session_seconds + 1e-3;
  return s;
}

size_t widest(const std::string& text) {
  size_t width = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) width = std::max(width, line.size());
  return width;
}

const ProfileRow* find(const Profile& p, const std::string& name) {
  for (const ProfileRow& row : p.rows)
    if (row.name == name) return &row;
  return nullptr;
}

TEST(Profile, RowsAndOverheadMakeUpTheStep) {
  for (const char* mesh : {"", R"(["pp=2", "dp=1", "tp=2"])"}) {
    const Programs p = programs(mesh);
    const Profile profiled = profile(p, {even_times(p, 7), even_times(p, 8)}, round_limits());
    EXPECT_EQ(profiled.steps, (std::vector<int64_t>{7, 8}));
    EXPECT_NEAR(profiled.step_seconds,
                profiled.rows_seconds + profiled.executor_seconds + profiled.idle_seconds +
                    profiled.driver_seconds,
                1e-9);
    double rows = 0;
    for (size_t i = 0; i < profiled.rows.size(); ++i) {
      rows += profiled.rows[i].seconds / profiled.ranks;
      if (i > 0) {
        EXPECT_LE(profiled.rows[i].seconds, profiled.rows[i - 1].seconds);
      }
    }
    EXPECT_NEAR(rows, profiled.rows_seconds, 1e-9);
    EXPECT_NEAR(profiled.driver_seconds, 1e-3, 1e-9);
  }
}

TEST(Profile, CountsCallsFlopsAndLimitsOfEachOp) {
  const Programs p = programs("");
  const Profile profiled = profile(p, {even_times(p)}, round_limits());
  std::map<std::string, ProfileRow> expected;
  int64_t bookkeeping = 0;
  for (const Action& a : p.ranks[0].actions) {
    if (!is_listed(a.kind)) {
      ++bookkeeping;
      continue;
    }
    ProfileRow& row = expected[a.kind == ActionKind::op ? a.name : to_string(a.kind)];
    const Cost c = cost_of(p, 0, a, round_limits());
    ++row.calls;
    row.flops += static_cast<double>(c.flops);
    row.limit_seconds += std::max(static_cast<double>(c.flops), static_cast<double>(c.bytes)) / 1e9;
  }
  ASSERT_EQ(profiled.rows.size(), expected.size());
  for (const auto& [name, row] : expected) {
    const ProfileRow* found = find(profiled, name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->calls, row.calls) << name;
    EXPECT_EQ(found->flops, row.flops) << name;
    EXPECT_NEAR(found->limit_seconds, row.limit_seconds, 1e-12) << name;
    EXPECT_NEAR(found->seconds, 1e-6 * row.calls, 1e-12) << name;
  }
  EXPECT_NEAR(profiled.executor_seconds, 1e-6 * static_cast<double>(bookkeeping), 1e-12);
  // By shape there are more rows, of the same calls in all.
  const Profile shaped = profile(p, {even_times(p)}, round_limits(), true);
  EXPECT_GT(shaped.rows.size(), profiled.rows.size());
  double calls = 0;
  for (const ProfileRow& row : shaped.rows)
    if (row.name == "rms_norm") calls += row.calls;
  EXPECT_EQ(calls, find(profiled, "rms_norm")->calls);
}

TEST(Profile, TableFitsThePageAndTheJsonSaysTheSame) {
  for (const char* mesh : {"", R"(["pp=2", "dp=1", "tp=2"])"})
    for (const bool by_shape : {false, true}) {
      const Programs p = programs(mesh);
      const Profile profiled = profile(p, {even_times(p)}, round_limits(), by_shape);
      const std::string text = profile_table(profiled);
      EXPECT_LE(widest(text), kColumns) << text;
      for (const char* words : {"Step 7", "of limit", "gap ms", "executor", "driver", "attention",
                                "matmul", "1.0 GFLOP/s"})
        EXPECT_THAT(text, HasSubstr(words));
      if (p.ranks.size() > 1) {
        EXPECT_THAT(text, HasSubstr("all_reduce, waiting"));
        EXPECT_THAT(text, HasSubstr("4 ranks x 1 thread"));
      }
      const json j = parse_json(profile_json(profiled).dump(), "profile", 10, 1000);
      EXPECT_EQ(j["rows"].size(), profiled.rows.size());
      EXPECT_EQ(j["ranks"], p.ranks.size());
      double seconds = 0;
      for (const json& row : j["rows"]) seconds += row["seconds_a_rank"].get<double>();
      EXPECT_NEAR(seconds, profiled.rows_seconds, 1e-9);
    }
}

// A receiver waits until the sender begins, and never longer than its own action.
TEST(Profile, WaitingEndsWhenTheLastOneComes) {
  const Programs p = programs(R"(["pp=2", "dp=1", "tp=2"])");
  StepTimes s = even_times(p);
  const auto index = [&](size_t rank, ActionKind kind) {
    for (size_t i = 0; i < p.ranks[rank].actions.size(); ++i)
      if (p.ranks[rank].actions[i].kind == kind) return i;
    return SIZE_MAX;
  };
  const size_t send = index(0, ActionKind::send), recv = index(2, ActionKind::recv);
  ASSERT_NE(send, SIZE_MAX);
  ASSERT_NE(recv, SIZE_MAX);
  ASSERT_EQ(p.ranks[0].actions[send].peer, 2);
  s.actions[0][send] = {5000, 6000};
  s.actions[2][recv] = {1000, 6500};
  EXPECT_EQ(waits(p, s.actions)[2][recv], 4000);
  s.actions[2][recv] = {1000, 3000};
  EXPECT_EQ(waits(p, s.actions)[2][recv], 2000);
  s.actions[2][recv] = {5500, 6500};
  EXPECT_EQ(waits(p, s.actions)[2][recv], 0);
  // The first all_reduce among ranks 0 and 1.
  const size_t mine = index(0, ActionKind::all_reduce), theirs = index(1, ActionKind::all_reduce);
  ASSERT_NE(mine, SIZE_MAX);
  ASSERT_EQ(p.ranks[0].actions[mine].group, p.ranks[1].actions[theirs].group);
  s.actions[0][mine] = {100, 900};
  s.actions[1][theirs] = {300, 900};
  EXPECT_EQ(waits(p, s.actions)[0][mine], 200);
  EXPECT_EQ(waits(p, s.actions)[1][theirs], 0);
}

TEST(Profile, SaysHowThreadsAreSpread) {
  EXPECT_EQ(threads_text(2, {{0, 1}}), "1 rank x 2 threads, pinned to cores 0-1");
  EXPECT_EQ(threads_text(1, {{3}}), "1 rank x 1 thread, pinned to core 3");
  EXPECT_EQ(threads_text(2, {{0, 1}, {4, 5}}), "2 ranks x 2 threads, pinned to cores 0-1, 4-5");
  EXPECT_EQ(threads_text(1, {{}, {}}), "2 ranks x 1 thread, not pinned");
}

// ---- trace ----------------------------------------------------------------------------------

struct Slice {
  int64_t begin, end;  // ns
  std::string name;
};

int64_t nanoseconds(const json& micro) { return std::llround(micro.get<double>() * 1000); }

TEST(Trace, ParsesAndItsSlicesNest) {
  for (const char* mesh : {"", R"(["pp=2", "dp=1", "tp=2"])"}) {
    const Programs p = programs(mesh);
    const std::string text = trace_text(p, even_times(p), round_limits());
    EXPECT_TRUE(text.starts_with(kTraceHead));
    const json trace = parse_json(text, "trace", 10, 1000);
    EXPECT_EQ(trace["otherData"]["step"], 7);
    std::map<std::pair<int, int>, std::vector<Slice>> tracks;
    std::map<int, int64_t> last_bytes, most_bytes;
    for (const json& e : trace["traceEvents"]) {
      const int rank = e["pid"];
      if (e["ph"] == "X") {
        const int64_t begin = nanoseconds(e["ts"]);
        EXPECT_GE(begin, 0);
        tracks[{rank, e["tid"].get<int>()}].push_back(
            {begin, begin + nanoseconds(e["dur"]), e["name"]});
      }
      if (e["ph"] == "C") {
        last_bytes[rank] = e["args"]["bytes"];
        most_bytes[rank] = std::max(most_bytes[rank], last_bytes[rank]);
      }
    }
    const VerifyReport report = verify(p);
    for (size_t r = 0; r < p.ranks.size(); ++r) {
      EXPECT_EQ(last_bytes[static_cast<int>(r)], report.ranks[r].state_bytes);
      EXPECT_EQ(most_bytes[static_cast<int>(r)], report.ranks[r].peak_live_bytes);
    }
    EXPECT_EQ(tracks.size(), p.ranks.size() * (p.ranks.size() > 1 ? 2 : 1));
    for (auto& [track, slices] : tracks) {
      std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
      });
      std::vector<Slice> open;
      for (const Slice& s : slices) {
        while (!open.empty() && open.back().end <= s.begin) open.pop_back();
        if (!open.empty()) {
          EXPECT_LE(s.end, open.back().end) << s.name << " in " << open.back().name;
        }
        if (track.second == 0 && open.empty()) {
          EXPECT_THAT(s.name, testing::MatchesRegex("[FBWU] s[0-9].*"));
        }
        open.push_back(s);
      }
    }
  }
}

TEST(Trace, EveryActionThatWorksHasASlice) {
  const Programs p = programs(R"(["pp=2", "dp=1", "tp=2"])");
  const json trace = json::parse(trace_text(p, even_times(p), round_limits()));
  std::vector<std::set<size_t>> seen(p.ranks.size());
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "X" || !e["args"].contains("action")) continue;
    const size_t rank = e["pid"], action = e["args"]["action"];
    EXPECT_TRUE(seen[rank].insert(action).second);
    const Action& a = p.ranks[rank].actions.at(action);
    EXPECT_EQ(e["name"], a.kind == ActionKind::op ? a.name : to_string(a.kind));
    EXPECT_EQ(e["tid"], is_communication(a.kind) ? 1 : 0);
    EXPECT_EQ(e["args"]["unit"], p.ranks[rank].units[static_cast<size_t>(a.unit)]);
    if (a.kind == ActionKind::op) {
      const Cost c = cost_of(p, static_cast<int>(rank), a, round_limits());
      EXPECT_EQ(e["args"]["flops"], c.flops);
      EXPECT_EQ(e["args"]["bytes"], c.bytes);
      EXPECT_NEAR(e["args"]["share of limit"].get<double>(), c.seconds / 1e-6, 1e-3);
    }
  }
  for (size_t r = 0; r < p.ranks.size(); ++r) {
    const auto& actions = p.ranks[r].actions;
    EXPECT_EQ(static_cast<int64_t>(seen[r].size()),
              std::count_if(actions.begin(), actions.end(),
                            [](const Action& a) { return is_listed(a.kind); }));
  }
}

}  // namespace
}  // namespace plait
