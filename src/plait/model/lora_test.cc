#include "plait/model/lora.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plait/model/families.h"

namespace plait {
namespace {

Model llama() { return load_model("llama-tiny", {2, 12}, Head::loss); }
Model gpt2() { return load_model("gpt2-tiny", {2, 12}, Head::loss); }

LoraConfig config(std::vector<std::string> targets) {
  LoraConfig c;
  c.rank = 3;
  c.alpha = 6;
  c.targets = std::move(targets);
  return c;
}

const Param& param(const Model& m, const std::string& name) {
  return m.params[m.param_index(name)];
}

std::string error_of(const Model& base, const LoraConfig& c) {
  try {
    with_lora(base, c);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Lora, AddsTheAdaptersOfItsTargetsAndFreezesTheRest) {
  const Model base = llama();
  const Model m = with_lora(base, config({"q_proj", "mlp.down_proj"}));
  EXPECT_EQ(m.params.size(), base.params.size() + 2 * 2 * 4);
  for (size_t p = 0; p < m.params.size(); ++p)
    EXPECT_EQ(m.params[p].frozen, p < base.params.size()) << m.params[p].name;
  const Param& a = param(m, "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight");
  const Param& b = param(m, "base_model.model.model.layers.2.self_attn.q_proj.lora_B.weight");
  EXPECT_EQ(to_string(a.type), "f32[R=3, D=32]");
  EXPECT_EQ(to_string(b.type), "f32[H=32/8, R=3]");
  EXPECT_EQ(a.init.kind, Init::Kind::uniform);
  EXPECT_DOUBLE_EQ(a.init.deviation, 1 / std::sqrt(32.0));
  EXPECT_EQ(b.init.kind, Init::Kind::zeros);
  EXPECT_EQ(m.trained_count(), 4 * (3 * 32 + 32 * 3 + 3 * 88 + 32 * 3));
  EXPECT_EQ(lora_targets(m).size(), 8u);
  EXPECT_EQ(m.blocks.size(), base.blocks.size()) << "layers share one block still";
}

TEST(Lora, SaysTheFormulaInTheBlock) {
  const std::string text = print_model(with_lora(llama(), config({"q_proj"})));
  EXPECT_NE(text.find("  q_plain.base = matmul(n, q_proj) trans_b=1\n"
                      "  q_plain.low = matmul(n, q_proj.lora_A) trans_b=1\n"
                      "  q_plain.high = matmul(q_plain.low, q_proj.lora_B) trans_b=1\n"
                      "  q_plain.scaled = scale(q_plain.high) by=2\n"
                      "  q_plain = add(q_plain.base, q_plain.scaled)\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("model.embed_tokens.weight [V, D] normal 0.02 frozen\n"), std::string::npos);
  EXPECT_EQ(print_model(parse_model(text, "printed")), text);
  LoraConfig rs = config({"q_proj"});
  rs.rank = 4;
  rs.rslora = true;
  EXPECT_NE(print_model(with_lora(llama(), rs)).find("by=3\n"), std::string::npos);
}

TEST(Lora, UsesWithOtherTargetsGetABlockOfTheirOwn) {
  const Model m = with_lora(llama(), config({"layers.1.self_attn.v_proj", "layers.3.mlp.up_proj"}));
  std::vector<std::string> names;
  for (const BlockUse& use : m.uses) names.push_back(m.blocks[use.block].name);
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "layer", "layer.lora", "layer", "layer.lora2",
                                             "head"}));
}

// GPT-2's q, k and v are rows of one tensor: one A, read once, and three row slices of B.
TEST(Lora, PartsOfAFusedModuleShareA) {
  const Model m = with_lora(gpt2(), config({"c_attn"}));
  const std::string module = "base_model.model.transformer.h.1.attn.";
  EXPECT_EQ(param(m, module + "c_attn.lora_A.weight").file.total_rows, 3);
  const char* parts[] = {"q", "k", "v"};
  for (int64_t i = 0; i < 3; ++i) {
    const Param& b = param(m, fmt::format("{}{}.lora_B.weight", module, parts[i]));
    EXPECT_EQ(b.file.tensor, module + "c_attn.lora_B.weight");
    EXPECT_EQ(b.file.row, 32 * i);
    EXPECT_EQ(b.file.total_rows, 96);
    EXPECT_FALSE(b.file.transposed);
  }
  EXPECT_EQ(m.trained_count(), 3 * (3 * 32 + 96 * 3));
  const std::string text = print_model(m);
  size_t low = 0;
  for (size_t at = 0; (at = text.find(".low = ", at)) != std::string::npos; ++at) ++low;
  EXPECT_EQ(low, 1u) << "x A^T is computed once";
}

TEST(Lora, AllLinearLeavesOutTheHead) {
  const Model m = with_lora(llama(), config({"all-linear"}));
  EXPECT_EQ(lora_targets(m).size(), 4u * 7);
  LoraConfig c = config({"all-linear"});
  c.modules_to_save = {"lm_head", "norm"};
  const Model saved = with_lora(llama(), c);
  EXPECT_FALSE(param(saved, "lm_head.weight").frozen);
  EXPECT_FALSE(param(saved, "model.norm.weight").frozen);
  EXPECT_TRUE(param(saved, "model.layers.0.input_layernorm.weight").frozen);
  EXPECT_EQ(lora_targets(with_lora(llama(), config({"lm_head"}))).size(), 1u);
}

TEST(Lora, WeightsStoredTheOtherWayRound) {
  const Model base = parse_model(
      "model m\nextent T = 4 by 2\nextent I = 3\nextent O = 5\ninput x float[T, I]\n"
      "param first.weight [I, O] ones\nparam second.weight [I, O] zeros\n"
      "block b (x float[T, I]) (w float[I, O], v float[I, O]) {\n"
      "  lora_A = matmul(x, w)\n  z = matmul(lora_A, v) trans_b=1\n  l = dot(z, z)\n  return l\n}\n"
      "l = b (x) (first.weight, second.weight) as b\nloss l\n",
      "test");
  const Model m = with_lora(base, config({"first", "second"}));
  EXPECT_EQ(to_string(param(m, "base_model.model.first.lora_A.weight").type), "f32[R=3, I=3]");
  EXPECT_EQ(to_string(param(m, "base_model.model.first.lora_B.weight").type), "f32[O=5, R=3]");
  EXPECT_EQ(to_string(param(m, "base_model.model.second.lora_A.weight").type), "f32[R=3, O=5]");
  EXPECT_EQ(to_string(param(m, "base_model.model.second.lora_B.weight").type), "f32[I=3, R=3]");
  ASSERT_EQ(lora_targets(m).size(), 2u);
  EXPECT_TRUE(lora_targets(m)[0].transposed);
  EXPECT_FALSE(lora_targets(m)[1].transposed);
  // Merged by hand: W[i, o] += scale sum_r A[r, i] B[o, r].
  HostTensors p = initial_parameters(m, 1);
  HostTensor &a = p.at("base_model.model.first.lora_A.weight"),
             &b = p.at("base_model.model.first.lora_B.weight");
  for (int64_t i = 0; i < b.elements(); ++i) b.as<float>()[i] = static_cast<float>(i) / 8;
  const HostTensors merged = merge_lora(m, p);
  EXPECT_EQ(merged.size(), 2u);
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t o = 0; o < 5; ++o) {
      double expected = 0;
      for (int64_t r = 0; r < 3; ++r) expected += 2 * a.at(r * 3 + i) * b.at(o * 3 + r);
      EXPECT_EQ(merged.at("first.weight").as<float>()[i * 5 + o], static_cast<float>(1 + expected));
    }
  EXPECT_EQ(merged.at("second.weight"), p.at("second.weight")) << "B is zero there";
}

// The letter R may be the model's own.
TEST(Lora, FindsAFreeLetter) {
  std::string text = print_model(llama());
  for (size_t at = 0; (at = text.find("[F, D]", at)) != std::string::npos;)
    text.replace(at, 6, "[R, D]");
  for (size_t at = 0; (at = text.find("[D, F]", at)) != std::string::npos;)
    text.replace(at, 6, "[D, R]");
  text.replace(text.find("extent F"), 8, "extent R");
  const Model m = with_lora(parse_model(text, "test"), config({"up_proj"}));
  EXPECT_EQ(m.extents.back().name, "RR");
}

TEST(Lora, RefusesByName) {
  const auto has = [](const std::string& message, const std::string& text) {
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  has(error_of(llama(), config({"q_proj", "query"})), "model 'llama-tiny' has no module 'query'");
  has(error_of(llama(), config({"proj"})), "has no module 'proj'");
  has(error_of(llama(), config({"embed_tokens"})),
      "target 'embed_tokens' is module 'model.embed_tokens', which op 'embedding' reads");
  has(error_of(llama(), config({"input_layernorm"})), "which op 'rms_norm' reads");
  has(error_of(gpt2(), config({"wte"})), "which op 'embedding' reads");
  has(error_of(llama(), config({})), "no target modules");
  LoraConfig c = config({"q_proj"});
  c.rank = 0;
  has(error_of(llama(), c), "rank 0; needs 1");
  c = config({"q_proj"});
  c.alpha = NAN;
  has(error_of(llama(), c), "alpha nan");
  c = config({"q_proj"});
  c.modules_to_save = {"head"};
  has(error_of(llama(), c), "has no module 'head' to save");
  c.modules_to_save = {"q_proj"};
  has(error_of(llama(), c), "is a target and to be saved whole");
  c = config({"c_fc"});
  c.modules_to_save = {"wte"};
  has(error_of(gpt2(), c), "is tied to another");
  has(error_of(with_lora(llama(), config({"q_proj"})), config({"k_proj"})), "has adapters already");
  EXPECT_THROW(merge_lora(llama(), {}), Error);
}

TEST(Lora, ModuleNamesMatchAsInPeft) {
  EXPECT_TRUE(matches_module("model.layers.0.mlp.up_proj", "up_proj"));
  EXPECT_TRUE(matches_module("model.layers.0.mlp.up_proj", "mlp.up_proj"));
  EXPECT_TRUE(matches_module("up_proj", "up_proj"));
  EXPECT_FALSE(matches_module("model.layers.0.mlp.gate_up_proj", "up_proj"));
  EXPECT_FALSE(matches_module("model.layers.0.mlp.up_proj", "mlp"));
  EXPECT_FALSE(matches_module("up_proj", "mlp.up_proj"));
}

}  // namespace
}  // namespace plait
