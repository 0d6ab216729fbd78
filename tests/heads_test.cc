// Key/value heads that do not divide over the tensor axis: every layout computes what one rank
// computes, gradients of embeddings, of k and v and of norms on heads included.
#include <gtest/gtest.h>

#include "harness.h"
#include "plait/program/verify.h"

namespace plait {
namespace {

std::string config(const char* type, int64_t heads, int64_t kv_heads) {
  return fmt::format(
      R"({{"model_type":"{}","vocab_size":67,"hidden_size":32,"num_hidden_layers":1,)"
      R"("num_attention_heads":{},"num_key_value_heads":{},"head_dim":8,"intermediate_size":40,)"
      R"("rms_norm_eps":1e-05,"rope_theta":10000.0,"max_position_embeddings":64,)"
      R"("tie_word_embeddings":false}})",
      type, heads, kv_heads);
}

Plan plan(const std::string& mesh, const std::string& splits) {
  return parse_plan(
      fmt::format("mesh = [{}]\nmicrobatches = 2\n[split]\nT = \"dp\"\n{}", mesh, splits), "test");
}

void expect_passes(const std::string& config_json, const Plan& p) {
  const CaseResult result = run_case({7, config_json, {}, {2, 9}, p});
  EXPECT_EQ(result.outcome, Outcome::passed) << result.what << print_plan(p) << config_json;
}

const char* kBoth = "H = \"tp\"\nG = \"tp\"\nF = \"tp\"\nV = \"tp\"\n";
const char* kQueriesOnly = "H = \"tp\"\nF = \"tp\"\n";

TEST(Heads, FewerKeyValueHeadsThanRanks) {
  for (const char* splits : {kBoth, kQueriesOnly}) {
    expect_passes(config("llama", 4, 1), plan("\"dp=1\", \"tp=2\"", splits));
    expect_passes(config("llama", 4, 1), plan("\"dp=2\", \"tp=4\"", splits));
    expect_passes(config("llama", 4, 2), plan("\"dp=1\", \"tp=4\"", splits));
    expect_passes(config("qwen3", 4, 1), plan("\"dp=2\", \"tp=2\"", splits));
    expect_passes(config("olmo2", 4, 2), plan("\"dp=1\", \"tp=4\"", splits));
  }
}

TEST(Heads, HeadsThatDoNotDivide) {
  for (const char* splits : {kBoth, kQueriesOnly}) {
    expect_passes(config("llama", 4, 2), plan("\"dp=1\", \"tp=3\"", splits));
    expect_passes(config("llama", 4, 4), plan("\"dp=2\", \"tp=3\"", splits));
    expect_passes(config("llama", 4, 4), plan("\"dp=1\", \"tp=8\"", splits));  // idle ranks
    expect_passes(config("qwen2", 6, 2), plan("\"dp=1\", \"tp=4\"", splits));
  }
  // Sizes by hand: 3 heads and 1, with their key/value heads or without.
  const char* uneven = "H = { axes = \"tp\", sizes = [24, 8] }\n";
  expect_passes(config("llama", 4, 2), plan("\"dp=1\", \"tp=2\"", uneven));
  expect_passes(config("llama", 4, 4), plan("\"dp=1\", \"tp=2\"",
                                            "H = { axes = \"tp\", sizes = [24, 8] }\n"
                                            "G = { axes = \"tp\", sizes = [24, 8] }\n"));
}

// k and v whole: nothing is gathered before attention, and their gradients are reduced behind it.
TEST(Heads, WhatIsSentForOneKeyValueHead) {
  const Model model = build_model(config("llama", 4, 1), {4, 12}, Head::loss);
  const Lowered l = lower(model, plan("\"tp=2\", \"dp=1\"", kQueriesOnly), harness_options());
  std::vector<std::string> sent;
  for (const PartGraph& part : l.parts)
    for (const PartNode& n : part.nodes)
      if (part.name == "layer" && n.comm)
        sent.push_back(fmt::format("{} {} {}", to_string(n.phase), n.op,
                                   part.values[static_cast<size_t>(n.in[0])].name));
  for (const char* value : {"B all_reduce d_k", "B all_reduce d_v"})
    EXPECT_EQ(std::count(sent.begin(), sent.end(), value), 1) << fmt::format("{}", sent);
  for (const std::string& s : sent) EXPECT_EQ(s.find("all_gather"), std::string::npos) << s;
}

// The weight that serves all heads has one gradient, the sum over the ranks that hold heads.
TEST(Heads, NormsOnHeadsHaveOneGradient) {
  expect_passes(config("qwen3", 4, 4), plan("\"dp=2\", \"tp=4\"", kBoth));
  expect_passes(config("gemma3_text", 4, 2), plan("\"dp=2\", \"tp=2\"", kBoth));
  Plan pipelined = plan("\"pp=2\", \"dp=1\", \"tp=2\"", kBoth);
  pipelined.mesh = Mesh({{"pp", 2}, {"dp", 1}, {"tp", 2}}, "pp");
  expect_passes(config("qwen3", 4, 2), pipelined);
}

}  // namespace
}  // namespace plait
