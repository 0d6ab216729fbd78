// Fusion: which rows of ops are found, what keeps them apart, and that nothing changes by it.
#include "plait/plan/fuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness.h"

namespace plait {
namespace {

using testing::Contains;
using testing::Not;

std::vector<std::string> ops_of(const Programs& programs) {
  std::vector<std::string> names;
  for (const Program& p : programs.ranks)
    for (const Action& a : p.actions)
      if (a.kind == ActionKind::op) names.push_back(a.name);
  return names;
}

Model tiny(const std::string& name) {
  return load_model(std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/" + name, {2, 12}, Head::loss);
}

std::vector<std::string> lowered_ops(const std::string& model, const std::string& plan,
                                     bool fuse = true) {
  LowerOptions options = harness_options();
  options.fuse = fuse;
  return ops_of(lower(tiny(model), parse_plan(plan, "test"), options).programs);
}

TEST(Fuse, OneRankOfLlama) {
  const auto ops =
      lowered_ops("llama_tiny", "mesh = []\nmicrobatches = 2\nrecompute = 'selective'");
  for (const char* fused : {"linear_nll_grad", "linear_nll_grad_accumulate", "gated_silu",
                            "gated_silu_grad", "linear_add", "matmul_accumulate"})
    EXPECT_THAT(ops, Contains(fused));
  for (const char* row : {"row_lse", "pick", "lse_grad", "pick_grad", "silu", "silu_grad"})
    EXPECT_THAT(ops, Not(Contains(row)));
}

TEST(Fuse, OneRankOfGpt2) {
  const auto ops = lowered_ops("gpt2_tiny", "mesh = []");
  for (const char* fused : {"linear_nll_grad", "linear_bias", "linear_bias_add",
                            "layer_norm_grad_x_add", "embedding_grad_accumulate"})
    EXPECT_THAT(ops, Contains(fused));
  EXPECT_THAT(ops, Not(Contains("add_bias")));
  EXPECT_THAT(lowered_ops("gpt2_tiny", "mesh = []", false), Not(Contains("linear_bias")));
}

// What a rank must reduce before the next op stays apart from it.
TEST(Fuse, CommunicationKeepsOpsApart) {
  const auto ops =
      lowered_ops("gpt2_tiny", "mesh = ['tp=2']\n[split]\nH = 'tp'\nG = 'tp'\nF = 'tp'\nV = 'tp'");
  EXPECT_THAT(ops, Not(Contains("linear_nll_grad")));  // the log-sum-exp is split
  EXPECT_THAT(ops, Not(Contains("linear_bias_add")));  // a row-split product is a pending sum
  EXPECT_THAT(ops, Contains("row_lse"));
  EXPECT_THAT(ops, Contains("linear_bias"));  // column-split ones are whole
  const auto whole_head =
      lowered_ops("gpt2_tiny", "mesh = ['tp=2']\n[split]\nH = 'tp'\nG = 'tp'\nF = 'tp'");
  EXPECT_THAT(whole_head, Contains("linear_nll_grad"));
}

// Evaluation hands out no gradient: the loss without it.
TEST(Fuse, EvaluationHasNoLogits) {
  LowerOptions options = harness_options();
  options.train = false;
  const Programs p = lower(tiny("llama_tiny"), parse_plan("mesh = []", "test"), options).programs;
  EXPECT_THAT(ops_of(p), Contains("linear_nll"));
  EXPECT_THAT(ops_of(p), Not(Contains("row_lse")));
}

// A model in bf16 sums its gradients in f32: the first is written as it is made, and none begins as
// zeros that were filled in, unless nothing makes it with the first micro-batch.
TEST(Fuse, GradientsInBf16BeginWithoutZeros) {
  for (const char* name : {"llama_tiny", "gpt2_tiny"}) {
    const auto zeroed = [&](Dtype dtype) {
      const Model model = with_dtype(tiny(name), dtype);
      const Plan plan = parse_plan("mesh = []\nmicrobatches = 2", "test");
      const Programs programs = lower(model, plan, harness_options()).programs;
      std::vector<std::string> buffers;
      for (const Action& a : programs.ranks[0].actions)
        if (a.kind == ActionKind::fill && a.value == 0)
          buffers.push_back(programs.ranks[0].buffer(a.out[0]).name);
      return buffers;
    };
    EXPECT_EQ(zeroed(Dtype::bf16), zeroed(Dtype::f32)) << name;
  }
}

struct Outcome {
  HostTensors gradients, parameters;
  double loss = 0;
  int64_t peak = 0;
};

Outcome run(const Model& model, const std::string& plan, bool fuse) {
  LowerOptions options = harness_options();
  options.fuse = fuse;
  const Plan p = parse_plan(plan, "test");
  SessionOptions checking;
  checking.poison = true;
  Session session(lower(model, p, options).programs, checking);
  session.set_states("param/", random_parameters(model, 3));
  session.step(random_batch(model, p.microbatches, 3));
  EXPECT_EQ(counted_as_predicted(session), "");
  return {session.gather("grad/"), session.gather("param/"), session.scalar("loss"),
          session.report().ranks[0].peak_live_bytes};
}

// The same numbers with and without, in f64, on one rank and on several.
TEST(Fuse, ChangesNoNumber) {
  for (const char* name : {"llama_tiny", "gpt2_tiny"})
    for (const char* layout : {"mesh = []\n", "mesh = ['dp=2']\n[split]\nT = 'dp'\n",
                               "mesh = ['tp=2']\n[split]\nH = 'tp'\nG = 'tp'\nF = 'tp'\n",
                               "mesh = ['pp=2']\n[pipeline]\naxis = 'pp'\n"})
      for (const char* recompute : {"none", "selective", "full"}) {
        const std::string plan =
            fmt::format("microbatches = 2\nrecompute = '{}'\n{}", recompute, layout);
        SCOPED_TRACE(name + std::string("\n") + plan);
        const Model model = with_dtype(tiny(name), Dtype::f64);
        const Outcome fused = run(model, plan, true), plain = run(model, plan, false);
        EXPECT_NEAR(fused.loss, plain.loss, 1e-12 * std::abs(plain.loss));
        ASSERT_EQ(fused.gradients.size(), plain.gradients.size());
        for (const auto& [key, gradient] : plain.gradients)
          EXPECT_LE(distance(fused.gradients.at(key), gradient), 1e-12 * (norm(gradient) + 1e-3))
              << key;
        EXPECT_LE(fused.peak, plain.peak);
      }
}

}  // namespace
}  // namespace plait
