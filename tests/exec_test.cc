// Sessions: errors, hangs, repetition, counters. Suite names begin with Exec, so that they also
// run under the thread sanitizer.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "harness.h"

namespace plait {
namespace {

constexpr const char* kPlan = R"(
mesh = ["pp=2", "dp=2", "tp=2"]
microbatches = 3
[split]
T = "dp"
H = "tp"
G = "tp"
F = "tp"
V = "tp"
[pipeline]
axis = "pp"
)";

struct Scene {
  Model model = with_dtype(load_model("llama-tiny", {3, 12}, Head::loss), Dtype::f64);
  Plan plan = parse_plan(kPlan, "test");
  HostTensors parameters = random_parameters(model, 5);
  Batch batch = random_batch(model, 3, 5);
};

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Exec, EightRanksCountWhatWasPredicted) {
  const Scene s;
  SessionOptions options;
  options.poison = true;
  Session session(lower(s.model, s.plan, harness_options()).programs, options);
  session.set_states("param/", s.parameters);
  for (int step = 0; step < 2; ++step) {
    session.step(s.batch);
    for (size_t r = 0; r < 8; ++r) {
      EXPECT_EQ(session.counters()[r].sent_bytes, session.report().ranks[r].sent_bytes);
      EXPECT_EQ(session.counters()[r].peak_live_bytes, session.report().ranks[r].peak_live_bytes);
      EXPECT_GT(session.counters()[r].sent_bytes, 0);
    }
  }
  session.check_replicas("");
  const ReferenceStep reference = reference_step(s.model, s.parameters, s.batch);
  EXPECT_TRUE(std::isfinite(reference.loss));
}

TEST(Exec, AdamWUnderALayoutIsAdamWOnOneRank) {
  const Scene s;
  LowerOptions options;  // AdamW, clipped
  options.optimizer.max_norm = 0.5;
  HostTensors trained[2];
  double norms[2] = {0, 0};
  int i = 0;
  for (const Plan& plan : {one_rank_plan(3), s.plan}) {
    Session session(lower(s.model, plan, options).programs, {});
    session.set_states("param/", s.parameters);
    Batch batch = s.batch;
    for (int step = 1; step <= 3; ++step) {
      batch.step["hyper"].as<double>()[0] = 0.01;
      batch.step["hyper"].as<double>()[1] = step;
      session.step(batch);
    }
    norms[i] = session.scalar("grad_sum_squares");
    trained[i++] = session.gather("param/");
  }
  EXPECT_GT(std::sqrt(norms[0]), 0.5) << "clipping must have happened";
  EXPECT_NEAR(norms[1] / norms[0], 1, 1e-9);
  for (const auto& [name, t] : trained[0])
    // AdamW divides by the root of the second moment, which magnifies rounding of tiny gradients.
    EXPECT_LE(distance(trained[1].at(name), t), 1e-7 * norm(t)) << name;
}

TEST(Exec, AnErrorOnOneRankStopsAllAndNamesTheAction) {
  Scene s;
  s.batch.microbatches[1]["tokens"].as<int32_t>()[30] = 67;  // on data rank 1 alone
  Session session(lower(s.model, s.plan, harness_options()).programs, {});
  session.set_states("param/", s.parameters);
  const auto start = std::chrono::steady_clock::now();
  const std::string message = message_of([&] { session.step(s.batch); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_NE(message.find("op embedding"), std::string::npos) << message;
  EXPECT_NE(message.find("rank "), std::string::npos) << message;
  EXPECT_NE(message.find("67"), std::string::npos) << message;
  EXPECT_NE(message_of([&] { session.step(s.batch); }).find("has stopped"), std::string::npos);
}

TEST(Exec, AHangIsBrokenAndNamed) {
  // Both ranks wait for the other's message first. The verifier refuses it; trusted, it hangs.
  std::string text = "programs \"t\" mesh \"dp=2\" pipeline \"\" slots 2\n";
  for (const int rank : {0, 1})
    text += fmt::format(R"(rank {} {{
  buffer b0 "mine" f64[4] [-] at 0 state
  buffer b1 "theirs" f64[4] [-] at 64
  unit "F"
  alloc b1
  recv b1 from {}
  send b0 to {}
  free b1
}}
)",
                        rank, 1 - rank, 1 - rank);
  const Programs programs = parse_programs(text, "test");
  EXPECT_NE(message_of([&] { Session(programs, {}); }).find("deadlock"), std::string::npos);
  SessionOptions options;
  options.trust = true;
  options.limit_seconds = 0.3;
  Session session(programs, options);
  const auto start = std::chrono::steady_clock::now();
  const std::string message = message_of([&] { session.step({}); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_NE(message.find("waited 0.3 s for a message from rank"), std::string::npos) << message;
  EXPECT_NE(message.find("action 1 'recv b1 from"), std::string::npos) << message;
}

// Nobody verified these programs, so ranks look themselves before they write.
TEST(Exec, ABufferBeyondTheArenaIsRefused) {
  const Scene s;
  Programs programs = lower(s.model, s.plan, harness_options()).programs;
  Program& first = programs.ranks[0];
  const auto buffer = std::find_if(first.buffers.begin(), first.buffers.end(),
                                   [](const Buffer& b) { return !b.state && b.bytes > 0; });
  ASSERT_NE(buffer, first.buffers.end());
  buffer->offset = first.arena_bytes - buffer->bytes + 1;
  SessionOptions options;
  options.trust = true;
  const std::string message = message_of([&] { Session(programs, options); });
  EXPECT_NE(message.find("beyond the arena"), std::string::npos) << message;
}

TEST(Exec, StatesAreCheckedWhenSet) {
  const Scene s;
  Session session(lower(s.model, s.plan, harness_options()).programs, {});
  HostTensors fewer = s.parameters;
  fewer.erase("model.norm.weight");
  EXPECT_NE(message_of([&] {
              session.set_states("param/", fewer);
            }).find("no tensor 'model.norm.weight'"),
            std::string::npos);
  HostTensors more = s.parameters;
  more["extra"] = HostTensor(Dtype::f64, {1});
  EXPECT_NE(message_of([&] { session.set_states("param/", more); }).find("'extra' is no state"),
            std::string::npos);
  HostTensors wrong = s.parameters;
  wrong["model.norm.weight"] = HostTensor(Dtype::f64, {31});
  EXPECT_NE(message_of([&] {
              session.set_states("param/", wrong);
            }).find("is f64[D=32], the tensor given is f64[31]"),
            std::string::npos);
  session.set_states("param/", s.parameters);
  EXPECT_EQ(session.gather("param/"), s.parameters);
  Batch bad = s.batch;
  bad.microbatches.pop_back();
  EXPECT_NE(message_of([&] { session.step(bad); }).find("the batch has 2 micro-batches"),
            std::string::npos);
}

TEST(Exec, ManySessionsStartAndStop) {
  const Scene s;
  const Lowered l = lower(s.model, s.plan, harness_options());
  for (int i = 0; i < 20; ++i) {
    Session session(l.programs, {});
    session.set_states("param/", s.parameters);
    if (i % 2 == 0) session.step(s.batch);
  }
}

TEST(Exec, OneForwardOneBackwardHoldsLessThanGpipe) {
  const Scene s;
  Plan plan = parse_plan("mesh = ['pp=4']\nmicrobatches = 8\n[pipeline]\naxis = 'pp'\n", "test");
  std::vector<int64_t> peaks[2], gradients;
  int i = 0;
  for (const char* schedule : {"1f1b", "gpipe"}) {
    plan.schedule = schedule;
    const Programs programs = lower(s.model, plan).programs;
    for (const RankReport& r : verify(programs).ranks) peaks[i].push_back(r.peak_live_bytes);
    ++i;
    gradients.clear();
    for (const Program& p : programs.ranks) {
      gradients.push_back(0);
      for (const Buffer& b : p.buffers)
        if (b.name.starts_with("grad/") && b.name != "grad/lm_head.weight")
          gradients.back() += b.bytes;
    }
  }
  // What one micro-batch holds on a rank, from how the peaks of GPipe grow with micro-batches.
  plan.microbatches = 7;
  const VerifyReport seven = verify(lower(s.model, plan).programs);
  for (size_t r = 0; r < 4; ++r) {
    const int64_t one = peaks[1][r] - seven.ranks[r].peak_live_bytes;
    EXPECT_GT(one, 0);
    // 8 micro-batches in flight under GPipe, 4 - r under 1F1B. At its peak 1F1B has gradients
    // beside them, which begin with the first backward pass; of those GPipe has the head's product
    // alone.
    EXPECT_EQ(peaks[1][r] - peaks[0][r], one * (8 - (4 - static_cast<int64_t>(r))) - gradients[r]);
  }
}

TEST(Exec, ProgramsHaveADigestOfTheirText) {
  const Scene s;
  const Programs a = lower(s.model, s.plan).programs;
  EXPECT_EQ(digest(a), digest(lower(s.model, s.plan).programs));
  EXPECT_EQ(digest(a), digest(parse_programs(print_programs(a), "printed")));
  Plan other = s.plan;
  other.schedule = "gpipe";
  EXPECT_NE(digest(a), digest(lower(s.model, other).programs));
}

}  // namespace
}  // namespace plait
