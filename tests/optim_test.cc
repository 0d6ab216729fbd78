// Updates against PyTorch's optimizers (tests/fixtures/make_optimizer_fixtures.py) on one rank and
// under layouts that split every parameter; and every optimizer on a model under a layout against
// one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness.h"
#include "plait/io/safetensors.h"
#include "plait/program/verify.h"

namespace plait {
namespace {

// The gradient of sum over parameters of (p . g) is g.
constexpr const char* kModel = R"(model given-gradients
dtype f64
extent A = 12 by 2
extent B = 6
extent C = 5
extent E = 9
extent W = 8
extent N = 7
input g_tall float[A, B]
input g_wide float[C, E]
input g_row float[1, W]
input g_vector float[N]
param tall [A, B] ones
param wide [C, E] ones
param row [1, W] ones
param vector [N] ones
block pull (a float[A, B], b float[C, E], c float[1, W], d float[N]) (tall float[A, B], wide float[C, E], row float[1, W], vector float[N]) {
  w = dot(tall, a)
  x = dot(wide, b)
  y = dot(row, c)
  z = dot(vector, d)
  wx = add(w, x)
  yz = add(y, z)
  all = add(wx, yz)
  return all
}
l = pull (g_tall, g_wide, g_row, g_vector) (tall, wide, row, vector) as pull
loss l
)";
const std::vector<std::string> kNames = {"tall", "wide", "row", "vector"};

std::vector<Plan> layouts() {
  return {one_rank_plan(1),
          parse_plan("mesh = ['dp=2', 'tp=2']\n[split]\nA = 'tp'\nB = 'dp'\nC = 'dp'\nE = 'tp'\n"
                     "W = 'tp'\nN = 'dp'\n",
                     "crossed"),
          parse_plan("mesh = ['tp=3', 'dp=2']\n[split]\nA = ['tp', 'dp']\nE = 'tp'\nC = 'dp'\n"
                     "N = 'tp'\n",
                     "uneven")};
}

struct Wanted {
  std::string fixture, name;
  Settings settings;
  double tolerance;
};

std::vector<Wanted> cases() {
  return {
      {"adamw", "adamw", {}, 1e-12},
      {"sgd", "sgd", {}, 1e-12},
      {"sgd_momentum", "sgd", {{"momentum", 0.9}, {"dampening", 0.1}}, 1e-12},
      {"sgd_nesterov", "sgd", {{"momentum", 0.9}, {"nesterov", 1}}, 1e-12},
      {"adafactor", "adafactor", {}, 1e-12},
      {"adafactor_other",
       "adafactor",
       {{"beta2_decay", -0.7}, {"eps1", 1e-3}, {"eps2", 2}, {"clip", 1.2}},
       1e-12},
      {"muon", "muon", {{"scaling", 0}}, 1e-9},
      {"muon_other",
       "muon",
       {{"momentum", 0.8}, {"nesterov", 0}, {"a", 3}, {"b", -3.2}, {"c", 1.2}, {"steps", 3}},
       1e-9},
  };
}

// Five steps on the fixture's gradients; what the parameters are then.
HostTensors five_steps(const Wanted& wanted, const HostTensors& fixture, const Plan& plan) {
  LowerOptions options;
  options.optimizer.name = wanted.name;
  options.optimizer.settings = wanted.settings;
  options.optimizer.max_norm = 0;
  SessionOptions poisoned;
  poisoned.poison = true;
  const Model model = parse_model(kModel, "test");
  Session session(lower(model, plan, options).programs, poisoned);
  HostTensors start;
  for (const std::string& name : kNames) start[name] = fixture.at("start." + name);
  session.set_states("param/", start);
  for (int step = 1; step <= 5; ++step) {
    Batch batch;
    batch.microbatches.emplace_back();
    for (const std::string& name : kNames)
      batch.microbatches[0]["g_" + name] = fixture.at(fmt::format("gradient.{}.{}", step, name));
    HostTensor hyper(Dtype::f64, {2});
    hyper.as<double>()[0] = fixture.at("rates").at(step - 1);
    hyper.as<double>()[1] = step;
    batch.step["hyper"] = hyper;
    session.step(batch);
    session.check_replicas("");
    for (size_t r = 0; r < session.counters().size(); ++r) {
      EXPECT_EQ(session.counters()[r].sent_bytes, session.report().ranks[r].sent_bytes);
      EXPECT_EQ(session.counters()[r].peak_live_bytes, session.report().ranks[r].peak_live_bytes);
    }
  }
  return session.gather("param/");
}

TEST(Optimizers, FollowPyTorchInEveryLayout) {
  const HostTensors fixture =
      SafetensorsFile(std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/optimizers.safetensors")
          .read_all();
  for (const Wanted& wanted : cases())
    for (const Plan& plan : layouts()) {
      SCOPED_TRACE(wanted.fixture + " on " + to_string(plan.mesh));
      const HostTensors found = five_steps(wanted, fixture, plan);
      for (const std::string& name : kNames) {
        const HostTensor& expected = fixture.at(wanted.fixture + "." + name);
        EXPECT_GT(distance(fixture.at("start." + name), expected), 1e-3 * norm(expected)) << name;
        EXPECT_LE(distance(found.at(name), expected), wanted.tolerance * norm(expected)) << name;
      }
    }
}

// A model under a pipeline, data and tensor layout, with a tied embedding on both pipeline ranks.
struct Trained {
  HostTensors parameters, states;
};

Trained train(const Model& model, const Plan& plan, const Optimizer& optimizer) {
  LowerOptions options;
  options.optimizer = optimizer;
  Session session(lower(model, plan, options).programs, {});
  session.set_states("param/", random_parameters(model, 5));
  Batch batch = random_batch(model, plan.microbatches, 5);
  for (int step = 1; step <= 3; ++step) {
    batch.step["hyper"].as<double>()[0] = 0.01;
    batch.step["hyper"].as<double>()[1] = step;
    session.step(batch);
    session.check_replicas("");
  }
  return {session.gather("param/"), session.gather("")};
}

TEST(Optimizers, OnAModelUnderALayoutAsOnOneRank) {
  const Model model =
      with_dtype(load_model(std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/llama_tiny_tied",
                            {4, 12}, Head::loss),
                 Dtype::f64);
  const Plan plan = parse_plan(
      "mesh = ['pp=2', 'dp=2', 'tp=2']\nmicrobatches = 2\n[split]\nT = 'dp'\nF = 'tp'\nV = 'tp'\n"
      "[place]\n'*.o_proj.weight' = ['dp', 'tp']\n[pipeline]\naxis = 'pp'\n",
      "test");
  for (const std::string& name : optimizer_names()) {
    SCOPED_TRACE(name);
    Optimizer optimizer;
    optimizer.name = name;
    optimizer.max_norm = 0.5;
    if (name == "sgd") optimizer.settings = {{"momentum", 0.9}};
    // Tiny second moments of AdamW magnify rounding; with a larger eps they do not.
    if (name == "adamw") optimizer.settings = {{"eps", 1e-4}};
    if (name == "muon") optimizer.settings = {{"adamw_eps", 1e-4}};
    const Trained one = train(model, one_rank_plan(2), optimizer);
    const Trained many = train(model, plan, optimizer);
    EXPECT_EQ(one.states.size(), many.states.size());
    for (const auto& [key, expected] : one.states)
      EXPECT_LE(distance(many.states.at(key), expected), 1e-9 * norm(expected) + 1e-15) << key;
    const HostTensors before = random_parameters(model, 5);
    for (const auto& [key, value] : one.parameters)
      EXPECT_EQ(value == before.at(key), name == "none") << key;
  }
}

TEST(Optimizers, MuonGathersMatricesAndKeepsMomentumPlaced) {
  const Model model = parse_model(kModel, "test");
  LowerOptions options;
  options.optimizer.name = "muon";
  const Programs programs = lower(model, layouts()[1], options).programs;
  const Program& p = programs.ranks[0];
  const Buffer& momentum = p.buffer(p.find_state("momentum/tall"));
  EXPECT_EQ(to_string(momentum.placement), "[tp, dp]");
  EXPECT_EQ(momentum.bytes, 6 * 3 * 8);
  EXPECT_NE(p.find_state("m/vector"), kNone);  // by AdamW
  EXPECT_EQ(p.find_state("m/tall"), kNone);
  int orthogonalized = 0;
  for (const Action& a : p.actions) {
    if (a.name != "orthogonalize") continue;
    ++orthogonalized;
    EXPECT_EQ(to_string(p.buffer(a.in[0]).placement), "[-, -]");
  }
  EXPECT_EQ(orthogonalized, 3);
}

}  // namespace
}  // namespace plait
