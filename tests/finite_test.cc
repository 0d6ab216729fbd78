// Steps that are not finite: parameters and states stay as they are in every bit, and a watch says
// where the value arose. Suite names begin with Exec, so that they also run under the thread
// sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness.h"
#include "plait/exec/watch.h"

namespace plait {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kPlan =
    "mesh = ['pp=2', 'dp=2', 'tp=2']\nmicrobatches = 3\n[split]\nT = 'dp'\nH = 'tp'\nG = 'tp'\n"
    "F = 'tp'\nV = 'tp'\n[pipeline]\naxis = 'pp'\n";

struct Scene {
  Model model = with_dtype(load_model("llama-tiny", {3, 12}, Head::loss), Dtype::f64);
  Plan plan = parse_plan(kPlan, "test");
  HostTensors parameters = random_parameters(model, 5);
  Batch batch = random_batch(model, 3, 5);
};

Programs programs_of(const Scene& s, const Optimizer& optimizer) {
  LowerOptions options;
  options.optimizer = optimizer;
  return lower(s.model, s.plan, options).programs;
}

struct Running : Session {
  explicit Running(const Scene& s, const Optimizer& optimizer = {})
      : Session(programs_of(s, optimizer), {}) {
    set_states("param/", s.parameters);
  }
};

// The bits of all states that an update may change. NaN differs from itself, so bytes it is.
std::map<std::string, std::vector<std::byte>> bits(const Session& session) {
  std::map<std::string, std::vector<std::byte>> all;
  for (const auto& [name, t] : session.gather(""))
    if (name != "loss" && name != "grad_sum_squares") all[name] = {t.data.begin(), t.data.end()};
  return all;
}

// Of a step under a watch.
NotFinite::Where found_by(Session& session, const Batch& batch) {
  session.watch({.finite = true, .replicas = false});
  try {
    session.step(batch);
  } catch (const NotFinite& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr(e.where.tensor));
    EXPECT_THAT(e.what(), testing::HasSubstr(fmt::format("rank {}", e.where.rank)));
    return e.where;
  }
  ADD_FAILURE() << "nothing is found";
  return {};
}

TEST(ExecFinite, ABadGradientChangesNothingInAnyOptimizer) {
  for (const std::string& name : optimizer_names())
    for (const double limit : {0.0, 1.0}) {
      if (limit == 0 && name != "adamw") continue;  // clip_scale decides, whatever the optimizer
      SCOPED_TRACE(fmt::format("{} clipped at {}", name, limit));
      Scene s;
      Optimizer optimizer;
      optimizer.name = name;
      optimizer.max_norm = limit;
      if (name == "sgd") optimizer.settings = {{"momentum", 0.9}};
      Running session(s, optimizer);
      session.step(s.batch);  // so that states are not all zero
      const auto before = bits(session);
      Batch bad = s.batch;  // one weight of one token on one data rank
      bad.microbatches[1]["weights"].as<double>()[30] = limit == 0 ? HUGE_VAL : kNan;
      session.step(bad);
      EXPECT_FALSE(std::isfinite(session.scalar("grad_sum_squares")));
      EXPECT_EQ(bits(session), before);
      session.step(s.batch);  // and it goes on from there
      EXPECT_TRUE(std::isfinite(session.scalar("grad_sum_squares")));
      EXPECT_EQ(bits(session) == before, name == "none");
    }
}

// A step whose loss alone is not finite.
TEST(ExecFinite, ABadLossChangesNothing) {
  const Model model = parse_model(R"(model m
dtype f64
extent N = 4
input g float[N]
input more float[]
param p [N] ones
block b (g float[N], more float[]) (p float[N]) {
  x = dot(p, g)
  y = add(x, more)
  return y
}
l = b (g, more) (p) as b
loss l
)",
                                  "test");
  Session session(lower(model, one_rank_plan(1), {}).programs, {});
  Batch batch;
  batch.microbatches.push_back(
      {{"g", HostTensor(Dtype::f64, {4})}, {"more", HostTensor(Dtype::f64, {})}});
  for (int i = 0; i < 4; ++i) batch.microbatches[0]["g"].as<double>()[i] = i;
  batch.step["hyper"] = HostTensor(Dtype::f64, {2});
  batch.step["hyper"].as<double>()[0] = 0.1;
  batch.step["hyper"].as<double>()[1] = 1;
  for (const double more : {0.0, HUGE_VAL, kNan}) {
    batch.microbatches[0]["more"].as<double>()[0] = more;
    const auto before = bits(session);
    session.step(batch);
    EXPECT_EQ(session.scalar("grad_sum_squares"), 14);
    EXPECT_EQ(bits(session) == before, more != 0) << more;
  }
}

TEST(ExecFinite, NamesAParameterThatWasBadBefore) {
  Scene s;
  s.parameters.at("model.layers.2.mlp.up_proj.weight").as<double>()[5] = kNan;
  Running session(s);
  session.step(s.batch);
  EXPECT_TRUE(std::isnan(session.scalar("loss")));
  const NotFinite::Where where = found_by(session, s.batch);
  EXPECT_EQ(where.tensor, "param/model.layers.2.mlp.up_proj.weight");
  EXPECT_EQ(where.op, "state");
  EXPECT_THAT(where.index, testing::ElementsAre(0, 5));
  EXPECT_TRUE(std::isnan(where.value));
}

TEST(ExecFinite, NamesTheOpInWhichAValueOverflowed) {
  Scene s;
  // Finite, but the product of what the two give is not.
  for (const char* name : {"gate_proj", "up_proj"}) {
    HostTensor& t = s.parameters.at(fmt::format("model.layers.1.mlp.{}.weight", name));
    std::fill_n(t.as<double>(), t.dims[1], 1e200);
  }
  Running session(s);
  session.step(s.batch);
  const auto before = bits(session);
  EXPECT_FALSE(std::isfinite(session.scalar("grad_sum_squares")));
  const NotFinite::Where where = found_by(session, s.batch);
  EXPECT_EQ(where.op, "mul");
  EXPECT_THAT(where.unit, testing::StartsWith("F s0 m"));
  EXPECT_THAT(where.unit, testing::EndsWith(" layers.1"));
  EXPECT_THAT(where.tensor, testing::HasSubstr(" layers.1 m"));
  EXPECT_EQ(where.index.at(1), 0);  // the feature
  EXPECT_TRUE(std::isinf(where.value));
  EXPECT_EQ(bits(session), before);
}

TEST(ExecFinite, NamesAnInputAndItsPlaceInTheWholeTensor) {
  Scene s;
  s.batch.microbatches[2]["weights"].as<double>()[30] = -HUGE_VAL;
  Running session(s);
  const NotFinite::Where where = found_by(session, s.batch);
  EXPECT_EQ(where.op, "input");
  EXPECT_EQ(where.tensor, "weights m2");
  EXPECT_THAT(where.index, testing::ElementsAre(30));
  EXPECT_LT(where.value, 0);
}

TEST(ExecFinite, FindsNothingInAGoodStepAndChangesNoBit) {
  const Scene s;
  Running plain(s), watched(s);
  watched.watch({.finite = true, .replicas = true});
  for (int step = 0; step < 2; ++step) {
    plain.step(s.batch);
    watched.step(s.batch);
  }
  EXPECT_EQ(bits(plain), bits(watched));
}

TEST(ExecFinite, ReplicasOfResultsAreCompared) {
  const Scene s;
  Programs programs = lower(s.model, s.plan, harness_options()).programs;
  // Rank 3 normalizes with another eps: a result that ranks 2 and 3 should share.
  std::string name;
  for (Action& a : programs.ranks[3].actions)
    if (name.empty() && a.name == "rms_norm") {
      a.attrs["eps"] = 1e-3;
      name = programs.ranks[3].buffer(a.out[0]).name;
    }
  SessionOptions trusting;
  trusting.trust = true;
  Session session(programs, trusting);
  session.set_states("param/", s.parameters);
  session.watch({.finite = false, .replicas = true});
  try {
    session.step(s.batch);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("rank 3 action"));
    EXPECT_THAT(e.what(), testing::HasSubstr("'" + name + "' differs in bits from that of rank 2"));
  }
}

}  // namespace
}  // namespace plait
