#include <gtest/gtest.h>

#include <algorithm>

#include "plait/ir/op.h"

namespace plait {
namespace {

TensorType matrix(const char* rows, int64_t n, const char* columns, int64_t m) {
  return {Dtype::f32, {{rows, n}, {columns, m}}};
}

// A feed-forward block with a norm and a residual: y = x + (silu(n w1T) * (n w2T)) w3T.
Graph block() {
  Graph g;
  g.name = "block";
  g.inputs = {g.add_value("x", matrix("T", 20, "D", 32))};
  g.params = {
      g.add_value("norm", {Dtype::f32, {{"D", 32}}}), g.add_value("w1", matrix("F", 48, "D", 32)),
      g.add_value("w2", matrix("F", 48, "D", 32)), g.add_value("w3", matrix("D", 32, "F", 48))};
  const Attrs t = {{"trans_b", 1}};
  const auto emit = [&](const char* op, const std::vector<ValueId>& in, const Attrs& attrs,
                        const char* name) { return g.emit1(op, in, attrs, Phase::F, name); };
  const ValueId n = emit("rms_norm", {g.inputs[0], g.params[0]}, {{"eps", 1e-5}}, "n");
  const ValueId gate = emit("matmul", {n, g.params[1]}, t, "gate");
  const ValueId up = emit("matmul", {n, g.params[2]}, t, "up");
  const ValueId active = emit("silu", {gate}, {}, "active");
  const ValueId gated = emit("mul", {active, up}, {}, "gated");
  const ValueId down = emit("matmul", {gated, g.params[3]}, t, "down");
  g.outputs = {emit("add", {g.inputs[0], down}, {}, "y")};
  return g;
}

const std::string& name(const Graph& g, ValueId v) { return g.values[static_cast<size_t>(v)].name; }

// Names of the forward results that B or W read, and of those that they make again, with phases.
struct Reads {
  std::vector<std::string> kept, again;
};
Reads reads(const Graph& g) {
  std::vector<bool> forward(g.values.size(), false);
  Reads r;
  for (const Node& node : g.nodes)
    for (ValueId v : node.phase == Phase::F ? node.out : node.in) {
      if (node.phase == Phase::F) forward[static_cast<size_t>(v)] = true;
      const bool seen = std::find(r.kept.begin(), r.kept.end(), name(g, v)) != r.kept.end();
      if (node.phase != Phase::F && forward[static_cast<size_t>(v)] && !seen)
        r.kept.push_back(name(g, v));
    }
  for (const Node& node : g.nodes)
    if (name(g, node.out[0]).ends_with(" again"))
      r.again.push_back(fmt::format("{} {}", to_string(node.phase), name(g, node.out[0])));
  std::sort(r.kept.begin(), r.kept.end());
  return r;
}

using Names = std::vector<std::string>;

TEST(Recompute, NoneKeepsWhatTheBackwardPassReads) {
  const Graph joint = differentiate(block());
  const Graph same = recompute(joint, Recompute::none);
  EXPECT_EQ(same.nodes.size(), joint.nodes.size());
  EXPECT_EQ(reads(same).kept, (Names{"active", "gate", "gated", "n", "up"}));
  EXPECT_EQ(reads(same).again, Names{});
}

// B makes what it reads, W only what B did not.
TEST(Recompute, FullKeepsTheInputsAlone) {
  const Reads r = reads(recompute(differentiate(block()), Recompute::full));
  EXPECT_EQ(r.kept, Names{});
  EXPECT_EQ(r.again,
            (Names{"B n again", "B up again", "B gate again", "B active again", "W gated again"}));
}

TEST(Recompute, SelectiveKeepsTheProducts) {
  const Reads r = reads(recompute(differentiate(block()), Recompute::selective));
  EXPECT_EQ(r.kept, (Names{"gate", "up"}));
  EXPECT_EQ(r.again, (Names{"B active again", "W gated again", "W n again"}));
}

// A sum of two products frees an operand that nobody else reads, so the sum itself is kept.
TEST(Recompute, SelectiveKeepsACheapResultWhereThatIsFree) {
  Graph g;
  g.inputs = {g.add_value("x", matrix("T", 20, "D", 32))};
  g.params = {g.add_value("w", matrix("D", 32, "D", 32)),
              g.add_value("v", matrix("D", 32, "D", 32))};
  const ValueId product =
      g.emit1("matmul", {g.inputs[0], g.params[0]}, {{"trans_b", 1}}, Phase::F, "product");
  const ValueId sum = g.emit1("add", {g.inputs[0], product}, {}, Phase::F, "sum");
  g.outputs = {g.emit1("matmul", {sum, g.params[1]}, {{"trans_b", 1}}, Phase::F, "y")};
  const Reads r = reads(recompute(differentiate(g), Recompute::selective));
  EXPECT_EQ(r.kept, Names{"sum"});
  EXPECT_EQ(r.again, Names{});
}

// Every node reads what was made before it, and the gradients are the same values.
TEST(Recompute, StaysInOrder) {
  const Graph joint = differentiate(block());
  for (const Recompute how : {Recompute::full, Recompute::selective}) {
    const Graph g = recompute(joint, how);
    std::vector<bool> made(g.values.size(), false);
    for (const auto* ids : {&g.inputs, &g.params, &g.d_outputs})
      for (ValueId v : *ids) made[static_cast<size_t>(v)] = true;
    Phase last = Phase::F;
    for (const Node& node : g.nodes) {
      EXPECT_GE(node.phase, last);
      last = node.phase;
      for (ValueId v : node.in) EXPECT_TRUE(made[static_cast<size_t>(v)]) << name(g, v);
      for (ValueId v : node.out) made[static_cast<size_t>(v)] = true;
    }
    EXPECT_EQ(g.d_params, joint.d_params);
    EXPECT_EQ(g.d_inputs, joint.d_inputs);
  }
}

}  // namespace
}  // namespace plait
