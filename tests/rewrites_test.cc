// Frozen parameters, recompute and LoRA under layouts, against the reference interpreter.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness.h"
#include "plait/base/glob.h"
#include "plait/model/lora.h"
#include "plait/program/suggest.h"

namespace plait {
namespace {

constexpr const char* kLlama =
    R"({"model_type":"llama","vocab_size":67,"hidden_size":32,"num_hidden_layers":4,)"
    R"("num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"intermediate_size":40,)"
    R"("rms_norm_eps":1e-05,"rope_theta":10000.0,"max_position_embeddings":64,)"
    R"("tie_word_embeddings":TIED,"hidden_act":"silu"})";
constexpr const char* kGpt2 =
    R"({"model_type":"gpt2","vocab_size":67,"n_positions":64,"n_embd":32,"n_layer":2,"n_head":4,)"
    R"("layer_norm_epsilon":1e-05,"activation_function":"gelu_new","resid_pdrop":0,"embd_pdrop":0,)"
    R"("attn_pdrop":0})";

Model build(std::string config, bool tied = false) {
  if (const size_t at = config.find("TIED"); at != std::string::npos)
    config.replace(at, 4, tied ? "true" : "false");
  return with_dtype(build_model(config, {3, 12}, Head::loss), Dtype::f64);
}

Plan plan(const std::string& mesh, const std::string& split, const std::string& more = "") {
  return parse_plan("mesh = [" + mesh + "]\nmicrobatches = 3\n" + more + "[split]\n" + split +
                        (mesh.find("pp=") == std::string::npos ? "" : "[pipeline]\naxis = 'pp'\n"),
                    "test");
}

const char* const kTensor = "T = 'dp'\nH = 'tp'\nG = 'tp'\nF = 'tp'\nV = 'tp'\n";

std::vector<Plan> plans(const std::string& more = "") {
  return {plan("", "", more), plan("'pp=2', 'dp=2', 'tp=2'", kTensor, more),
          plan("'tp=2', 'dp=2'", "T = 'dp'\nD = 'tp'\nF = 'tp'\n", more),
          plan("'dp=3', 'pp=2'", "T = 'dp'\n", more)};
}

// One step against the reference; replicas equal in bits.
std::string step(const Truth& truth, const Plan& p) {
  SessionOptions options;
  options.poison = true;
  options.limit_seconds = 20;
  return compare_step(lower(truth.model, p, harness_options()).programs, truth, options);
}

// Bytes and peaks, and the text of the programs.
std::string predictions(const Truth& truth, const Plan& p) {
  const Programs programs = lower(truth.model, p, harness_options()).programs;
  const std::string printed = print_programs(programs);
  if (print_programs(parse_programs(printed, "printed")) != printed) return "does not print back";
  Session session(programs, {});
  session.set_states("param/", truth.parameters);
  session.step(truth.batch);
  return counted_as_predicted(session);
}

void freeze(Model& m, const std::vector<std::string>& trained) {
  for (Param& p : m.params)
    p.frozen = std::none_of(trained.begin(), trained.end(),
                            [&](const std::string& t) { return glob_match(t, p.name); });
}

int64_t count(const Program& p, ActionKind kind) {
  return std::count_if(p.actions.begin(), p.actions.end(),
                       [&](const Action& a) { return a.kind == kind; });
}

// ---- frozen parameters ----

TEST(Frozen, LayoutsEqualTheReference) {
  const std::vector<std::vector<std::string>> choices = {
      {"*layers.2.*"},                 // nothing below needs a gradient
      {"*embed_tokens*"},              // everything needs one, few parameters have one
      {"*norm*", "*layers.0.*_proj*"}  // mixed inside blocks
  };
  for (const bool tied : {false, true})
    for (const auto& trained : choices) {
      Model m = build(kLlama, tied);
      freeze(m, trained);
      const Truth truth = make_truth(m, 3, 5);
      for (const Plan& p : plans()) EXPECT_EQ(step(truth, p), "") << trained[0] << print_plan(p);
    }
}

TEST(Frozen, NoStatesNoGradientsNoMessages) {
  Model m = build(kLlama);
  freeze(m, {"*layers.3.*"});
  Plan p = plan("'pp=3'", "");
  p.blocks = {2, 2, 2};
  const Lowered l = lower(m, p, {});
  for (const Program& program : l.programs.ranks)
    for (const Buffer& b : program.buffers)
      for (const char* kind : {"m/", "v/", "grad/"})
        if (b.name.starts_with(kind)) {
          EXPECT_NE(b.name.find("layers.3."), std::string::npos) << b.name;
        }
  // Activations of 3 micro-batches go down the pipeline, and no gradient comes back.
  ASSERT_EQ(l.programs.ranks.size(), 3u);
  EXPECT_EQ(count(l.programs.ranks[2], ActionKind::send), 0);
  EXPECT_EQ(count(l.programs.ranks[1], ActionKind::send), 3);
  EXPECT_EQ(count(l.programs.ranks[0], ActionKind::send), 3);
  for (const Action& a : l.programs.ranks[0].actions)
    EXPECT_FALSE(a.kind == ActionKind::op && a.name.find("grad") != std::string::npos) << a.name;
}

// A pipeline rank that trains nothing takes part in the norm all the same.
TEST(Frozen, ThePipelineRankWithoutTrainedParameters) {
  for (const char* trained :
       {"*embed_tokens*", "*layers.0.*", "*layers.2.*", "lm_head*", "model.norm*"}) {
    Model m = build(kLlama);
    freeze(m, {trained});
    const Truth truth = make_truth(m, 3, 11);
    EXPECT_EQ(step(truth, plan("'pp=4'", "")), "") << trained;
    const Plan eight = plan("'pp=4', 'dp=2'", "T = 'dp'\n");
    EXPECT_EQ(step(truth, eight) + predictions(truth, eight), "") << trained;
  }
}

// Clipping and AdamW see the trained parameters alone, in every layout.
TEST(Frozen, AdamWAndClipping) {
  Model m = build(kLlama);
  freeze(m, {"*layers.1.*", "lm_head*"});
  Truth truth = make_truth(m, 3, 21);
  LowerOptions o;
  o.optimizer.max_norm = 0.01;
  std::vector<HostTensors> after;
  for (const Plan& p : plans()) {
    Session session(lower(m, p, o).programs, {});
    session.set_states("param/", truth.parameters);
    session.step(truth.batch);
    session.check_replicas("");
    EXPECT_NEAR(session.scalar("grad_sum_squares"), truth.reference.grad_sum_squares,
                1e-10 * truth.reference.grad_sum_squares);
    after.push_back(session.gather("param/"));
  }
  for (const Param& p : m.params)
    for (const HostTensors& other : after)
      if (p.frozen)
        EXPECT_EQ(other.at(p.name), truth.parameters.at(p.name)) << p.name;
      else
        EXPECT_LE(distance(other.at(p.name), after[0].at(p.name)), 1e-9) << p.name;
}

TEST(Frozen, NothingToTrainIsRefused) {
  Model m = build(kLlama);
  freeze(m, {});
  try {
    lower(m, one_rank_plan(1));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("every parameter is frozen"), std::string::npos);
  }
  LowerOptions forward;
  forward.train = false;
  EXPECT_NO_THROW(lower(m, one_rank_plan(1), forward));
}

// A value that no loss depends on crosses a pipeline border: no gradient comes back for it.
TEST(Frozen, ValuesWithoutGradientsCrossBorders) {
  const Model m = parse_model(R"(model m
dtype f64
extent T = 6 by 2
extent D = 4
extent V = 7
input tokens i32[T]
input labels i32[T]
input weights float[T]
param table [V, D] normal 0.3
param idle [D] ones
block embed (tokens i32[T]) (table float[V, D], idle float[D]) {
  x = embedding(table, tokens)
  side = add_bias(x, idle)
  return x, side
}
block head (x float[T, D], side float[T, D], labels i32[T], weights float[T]) (table float[V, D]) {
  logits = matmul(x, table) trans_b=1
  lse = row_lse(logits)
  picked = pick(logits, labels)
  nll = sub(lse, picked)
  loss = dot(weights, nll)
  return loss
}
x, side = embed (tokens) (table, idle) as embed
loss = head (x, side, labels, weights) (table) as head
loss loss
)",
                              "test");
  for (const Plan& p : {plan("'pp=2'", ""), plan("'pp=2', 'dp=2'", "T = 'dp'\n")})
    EXPECT_NO_THROW(verify(lower(m, p, harness_options()).programs));
}

// ---- recompute ----

struct Trained {
  HostTensors parameters;
  double loss = 0;
  int64_t peak = 0, sent = 0;
  Meaning meaning;
};

Trained two_steps(const Truth& truth, Plan p, Recompute how) {
  p.recompute = how;
  SessionOptions options;
  options.poison = true;
  Session session(lower(truth.model, p, harness_options()).programs, options);
  session.set_states("param/", truth.parameters);
  for (int i = 0; i < 2; ++i) session.step(truth.batch);
  session.check_replicas("");
  EXPECT_EQ(counted_as_predicted(session), "");
  Trained r{session.gather("param/"), session.scalar("loss"), 0, 0, session.report().meaning};
  for (const RankReport& rank : session.report().ranks) {
    r.peak = std::max(r.peak, rank.peak_live_bytes);
    r.sent += rank.sent_bytes;
  }
  return r;
}

TEST(SlowRecompute, GivesTheSameBitsWithLessMemory) {
  for (const Model& m : {build(kLlama), build(kGpt2)}) {
    const Truth truth = make_truth(m, 3, 31);
    for (const Plan& p : plans()) {
      const Trained none = two_steps(truth, p, Recompute::none);
      for (const Recompute how : {Recompute::full, Recompute::selective}) {
        const Trained r = two_steps(truth, p, how);
        EXPECT_EQ(r.parameters, none.parameters) << to_string(how) << print_plan(p);
        EXPECT_EQ(r.loss, none.loss);
        EXPECT_EQ(r.meaning, none.meaning);
        EXPECT_GE(r.sent, none.sent);
      }
    }
  }
}

// All micro-batches are in flight under gpipe, so what is kept counts most there.
TEST(Recompute, SavesMostWhereManyMicrobatchesAreInFlight) {
  const Truth truth = make_truth(build(kLlama), 6, 33);
  Plan p = plan("'pp=2'", "");
  p.microbatches = 6;
  p.schedule = "gpipe";
  const int64_t none = two_steps(truth, p, Recompute::none).peak;
  const int64_t selective = two_steps(truth, p, Recompute::selective).peak;
  const int64_t full = two_steps(truth, p, Recompute::full).peak;
  EXPECT_LT(static_cast<double>(selective), 0.85 * static_cast<double>(none));
  EXPECT_LT(static_cast<double>(full), 0.85 * static_cast<double>(selective));
}

// ---- LoRA ----

Model adapted(const Model& base, std::vector<std::string> targets, bool rslora = false) {
  LoraConfig c;
  c.rank = 4;
  c.alpha = 6;
  c.targets = std::move(targets);
  c.rslora = rslora;
  return with_lora(base, c);
}

TEST(SlowLora, LayoutsEqualTheReference) {
  std::vector<Model> models = {adapted(build(kLlama), {"all-linear"}),
                               adapted(build(kLlama, true), {"q_proj", "layers.2.mlp.down_proj"}),
                               adapted(build(kGpt2), {"c_attn", "mlp.c_proj"}, true)};
  LoraConfig whole;
  whole.targets = {"v_proj", "o_proj"};
  whole.modules_to_save = {"lm_head", "norm"};
  models.push_back(with_lora(build(kLlama), whole));
  for (const Model& m : models) {
    const Truth truth = make_truth(m, 3, 41);
    for (const Plan& p : plans("recompute = 'selective'\n"))
      EXPECT_EQ(step(truth, p), "") << m.name << print_plan(p);
    EXPECT_EQ(step(truth, plans()[1]), "") << m.name;
    const Plan full = plans("recompute = 'full'\n")[2];
    EXPECT_EQ(step(truth, full) + predictions(truth, full), "") << m.name;
  }
}

TEST(Lora, TheRankMayBeSplit) {
  const Truth truth = make_truth(adapted(build(kLlama), {"all-linear"}), 3, 43);
  EXPECT_EQ(step(truth, plan("'tp=2', 'dp=2'", "T = 'dp'\nR = 'tp'\n")), "");
  EXPECT_EQ(step(truth, plan("'tp=2', 'dp=2'", "T = 'dp'\nR = 'tp'\nH = 'tp'\nG = 'tp'\n")), "");
}

// The text says all that the programs need.
TEST(Lora, TheTextOfTheModelMeansTheSame) {
  const Model m = adapted(build(kGpt2), {"c_attn"});
  const Model again = parse_model(print_model(m), "printed");
  const Plan p = plans()[1];
  EXPECT_EQ(print_programs(lower(again, p).programs), print_programs(lower(m, p).programs));
}

HostTensor logits(const Model& base, const HostTensors& parameters, const Batch& batch) {
  LowerOptions forward;
  forward.train = false;
  Session session(lower(base, one_rank_plan(1), forward).programs, {});
  session.set_states("param/", parameters);
  session.step({{batch.microbatches[0]}, {}});
  return session.gather("logits").at("");
}

TEST(Lora, MergedWeightsGiveTheSameLogits) {
  for (const char* config : {kLlama, kGpt2}) {
    std::string text = config;
    if (const size_t at = text.find("TIED"); at != std::string::npos) text.replace(at, 4, "true");
    const Model base = with_dtype(build_model(text, {3, 12}, Head::logits), Dtype::f64);
    const Model m = adapted(base, {"all-linear"});
    const HostTensors parameters = random_parameters(m, 3);
    const Batch batch = random_batch(build(config, true), 1, 4);
    const HostTensor with = logits(m, parameters, batch),
                     merged = logits(base, merge_lora(m, parameters), batch);
    EXPECT_LE(distance(with, merged), 1e-12 * norm(with));
    HostTensors plain = parameters;  // the adapters do something
    for (const LoraTarget& t : lora_targets(m)) {
      plain.erase(m.params[t.a].name);
      plain.erase(m.params[t.b].name);
    }
    EXPECT_GT(distance(with, logits(base, plain, batch)), 0.01 * norm(with));
  }
}

TEST(Lora, UnevenHeads) {
  const Model m = adapted(build(kLlama), {"all-linear"});
  // Four heads over three ranks: two, one and one.
  EXPECT_NO_THROW(verify(lower(m, plan("'tp=3'", "H = 'tp'\nG = 'tp'\n")).programs));
}

TEST(Lora, ARefusedPlanIsMended) {
  const Model m = adapted(build(kLlama), {"all-linear"});
  Plan p = plan("'pp=2'", "");
  p.blocks = {1, 1};
  EXPECT_THROW(lower(m, p), Error);
  const auto found = suggest_plan(m, p, 0, {});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->changes,
            std::vector<std::string>{"pipeline.blocks: left out, so that FLOPs are balanced"});
  EXPECT_NO_THROW(verify(lower(m, found->plan).programs));
}

}  // namespace
}  // namespace plait
