#include "plait/optim/optimizer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <set>

namespace plait {
namespace {

constexpr const char* kModel = R"(model m
dtype f32
extent T = 4
extent V = 10
extent D = 4
input tokens i32[T]
param model.embed.weight [V, D] ones
param layer.proj.weight [D, D] ones
param layer.norm.weight [D] ones
block b (tokens i32[T]) (table float[V, D], proj float[D, D], norm float[D]) {
  x = embedding(table, tokens)
  y = matmul(x, proj) trans_b=1
  z = rms_norm(y, norm) eps=1e-5
  return z
}
out = b (tokens) (model.embed.weight, layer.proj.weight, layer.norm.weight) as b
)";

Model model() { return parse_model(kModel, "test"); }

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

Optimizer named(const std::string& name) {
  Optimizer o;
  o.name = name;
  return o;
}

TEST(Optimizer, EveryRecordIsComplete) {
  std::set<std::string_view> names;
  for (const OptimizerDef& def : all_optimizers()) {
    EXPECT_TRUE(names.insert(def.name).second) << def.name;
    EXPECT_EQ(&find_optimizer(def.name), &def);
    EXPECT_FALSE(def.summary.empty());
    EXPECT_EQ(def.wants == nullptr, def.other.empty()) << def.name;
    std::set<std::string_view> settings = {"weight_decay", "max_norm"};
    for (const Setting& s : def.settings) {
      EXPECT_TRUE(settings.insert(s.name).second) << s.name;
      EXPECT_FALSE(s.summary.empty()) << s.name;
      EXPECT_GE(s.value, s.low) << s.name;
      EXPECT_LE(s.value, s.high) << s.name;
      Optimizer o = named(std::string(def.name));
      set_setting(o, std::string(s.name), s.high);
      EXPECT_NE(refusal([&] { set_setting(o, std::string(s.name), s.high * 2 + 1); }), "");
      EXPECT_NE(refusal([&] { set_setting(o, std::string(s.name), std::nan("")); }), "");
      EXPECT_THAT(settings_text(def.name), testing::HasSubstr(std::string(s.name)));
    }
    for (const ParamUpdate& u : choose_updates(named(std::string(def.name)), model())) {
      EXPECT_EQ(u.def->states == nullptr, u.states.empty() && def.name == "none");
      for (const StateDef& s : u.states)
        EXPECT_THAT(s.prefix, testing::AllOf(testing::Ne("param"), testing::Ne("grad")));
    }
  }
  EXPECT_THAT(optimizer_names(), testing::ElementsAre("adamw", "sgd", "adafactor", "muon", "none"));
}

TEST(Optimizer, SettingsAreCheckedAndListed) {
  EXPECT_EQ(refusal([] { find_optimizer("adam"); }),
            "unknown optimizer 'adam'; known are adamw, sgd, adafactor, muon, none");
  Optimizer o = named("sgd");
  EXPECT_EQ(refusal([&] { set_setting(o, "beta1", 0.5); }),
            "optimizer 'sgd' has no setting 'beta1'; it has weight_decay (0.1), max_norm (1), "
            "momentum (0), dampening (0), nesterov (0)");
  EXPECT_EQ(refusal([&] { set_setting(o, "momentum", 1); }),
            "optimizer 'sgd': momentum is 1, expected a number, 0 to 0.9999999999999999 (decay of "
            "the running sum of gradients; 0: no state)");
  EXPECT_THAT(refusal([&] { set_setting(o, "nesterov", 0.5); }),
              testing::HasSubstr("expected a whole number, 0 to 1"));
  set_setting(o, "weight_decay", 0.3);
  set_setting(o, "max_norm", 0);
  EXPECT_EQ(o.weight_decay, 0.3);
  EXPECT_EQ(o.max_norm, 0);
  EXPECT_THAT(refusal([&] { set_setting(o, "max_norm", -1); }), testing::HasSubstr("max_norm"));
  o.settings = {{"nesterov", 1}};
  EXPECT_THAT(refusal([&] { choose_updates(o, model()); }),
              testing::HasSubstr("nesterov with momentum 0"));
}

TEST(Optimizer, MatricesDecayAndGroupsSayOtherwise) {
  Optimizer o = named("adamw");
  std::vector<ParamUpdate> u = choose_updates(o, model());
  EXPECT_EQ(u[0].weight_decay, 0.1);
  EXPECT_EQ(u[1].weight_decay, 0.1);
  EXPECT_EQ(u[2].weight_decay, 0);
  ParamGroup embed, vectors, all;
  embed.match = "*embed*";
  embed.weight_decay = 0;
  vectors.max_dims = 1;
  vectors.weight_decay = 0.2;
  vectors.optimizer = "sgd";
  vectors.settings = {{"momentum", 0.9}};
  all.rate = 0.5;
  o.groups = {embed, vectors, all};
  u = choose_updates(o, model());
  EXPECT_EQ(u[0].weight_decay, 0);
  EXPECT_EQ(u[1].weight_decay, 0.1);
  EXPECT_EQ(u[2].weight_decay, 0.2);
  EXPECT_EQ(u[2].def->name, "sgd");
  EXPECT_EQ(u[2].settings.at("momentum"), 0.9);
  EXPECT_EQ(u[2].states[0].prefix, "momentum");
  for (const ParamUpdate& one : u) EXPECT_EQ(one.rate, 0.5);
  embed.match = "*emb";
  o.groups = {embed};
  EXPECT_THAT(refusal([&] { choose_updates(o, model()); }),
              testing::HasSubstr("group \"*emb\" of 0 to 8 dimensions: no parameter of 'm'"));
  vectors.settings = {{"beta1", 0.9}};
  o.groups = {vectors};
  EXPECT_THAT(refusal([&] { choose_updates(o, model()); }),
              testing::StartsWith("parameter 'layer.norm.weight': optimizer 'sgd' has no setting"));
}

TEST(Optimizer, MuonTakesTheMatricesInside) {
  Optimizer o = named("muon");
  o.settings = {{"adamw_beta1", 0.8}, {"adamw_rate", 0.25}};
  std::vector<ParamUpdate> u = choose_updates(o, model());
  EXPECT_EQ(u[0].def->name, "adamw");
  EXPECT_EQ(u[0].settings.at("beta1"), 0.8);
  EXPECT_EQ(u[0].rate, 0.25);
  EXPECT_EQ(u[1].def->name, "muon");
  EXPECT_EQ(u[1].rate, 1);
  EXPECT_EQ(u[2].def->name, "adamw");
  ParamGroup g;
  g.match = "*embed*";
  g.optimizer = "muon";
  o.groups = {g};
  u = choose_updates(o, model());
  EXPECT_EQ(u[0].def->name, "muon");
  g.match = "*norm*";
  o.groups = {g};
  EXPECT_THAT(refusal([&] { choose_updates(o, model()); }),
              testing::HasSubstr("found 1 dimensions, expected 2"));
}

TEST(Optimizer, AdafactorKeepsRowsAndColumns) {
  const std::vector<ParamUpdate> u = choose_updates(named("adafactor"), model());
  const Model m = model();
  EXPECT_EQ(to_string(state_type(u[0].states.at(0), m.params[0].type)), "f32[V=10]");
  EXPECT_EQ(to_string(state_type(u[0].states.at(1), m.params[0].type)), "f32[D=4]");
  EXPECT_EQ(u[0].states[0].prefix, "row");
  EXPECT_EQ(u[0].states[1].prefix, "col");
  EXPECT_EQ(u[2].states.at(0).prefix, "v");
  const TensorType stack{Dtype::f32, {{"E", 3}, {"F", 5}, {"D", 7}}};
  const auto states = find_optimizer("adafactor").states(u[0].settings, stack);
  EXPECT_EQ(to_string(state_type(states.at(0), stack)), "f32[E=3, F=5]");
  EXPECT_EQ(to_string(state_type(states.at(1), stack)), "f32[E=3, D=7]");
}

}  // namespace
}  // namespace plait
