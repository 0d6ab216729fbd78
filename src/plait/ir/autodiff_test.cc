#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plait/ir/op.h"

namespace plait {
namespace {

TensorType matrix(int64_t rows, int64_t columns) {
  return {Dtype::f32, {{"", rows}, {"", columns}}};
}

const Node& producer(const Graph& graph, ValueId id) {
  for (const Node& node : graph.nodes)
    for (ValueId v : node.out)
      if (v == id) return node;
  fail("value {} has no producer", id);
}

// y = silu(x w1T) w2T
Graph feed_forward() {
  Graph g;
  g.name = "feed_forward";
  g.inputs = {g.add_value("x", matrix(5, 4))};
  g.params = {g.add_value("w1", matrix(8, 4)), g.add_value("w2", matrix(3, 8))};
  const ValueId up = g.emit1("matmul", {g.inputs[0], g.params[0]}, {{"trans_b", 1}});
  const ValueId gate = g.emit1("silu", {up});
  g.outputs = {g.emit1("matmul", {gate, g.params[1]}, {{"trans_b", 1}}, Phase::F, {"y"})};
  return g;
}

TEST(Autodiff, SplitsTheBackwardPassIntoInputAndWeightGradients) {
  const Graph joint = differentiate(feed_forward());
  std::map<std::string, int> count;
  for (const Node& node : joint.nodes) ++count[node.op + " " + to_string(node.phase)];
  EXPECT_EQ(
      count,
      (std::map<std::string, int>{
          {"matmul F", 2}, {"silu F", 1}, {"matmul B", 2}, {"silu_grad B", 1}, {"matmul W", 2}}));
  EXPECT_EQ(producer(joint, joint.d_inputs[0]).phase, Phase::B);
  for (size_t i = 0; i < joint.params.size(); ++i) {
    EXPECT_EQ(producer(joint, joint.d_params[i]).phase, Phase::W);
    EXPECT_EQ(joint.type(joint.d_params[i]), joint.type(joint.params[i]));
  }
  EXPECT_EQ(joint.type(joint.d_outputs[0]), joint.type(joint.outputs[0]));
}

TEST(Autodiff, AddsTheGradientsOfTwoUses) {
  Graph g;
  g.inputs = {g.add_value("x", matrix(2, 3))};
  const ValueId twice = g.emit1("add", {g.inputs[0], g.inputs[0]});
  g.outputs = {g.emit1("mul", {twice, g.inputs[0]})};
  const Graph joint = differentiate(g);
  const Node& sum = producer(joint, joint.d_inputs[0]);
  EXPECT_EQ(sum.op, "add");
  EXPECT_EQ(sum.phase, Phase::B);
  EXPECT_EQ(joint.nodes.size(), 6u);  // add, mul; mul, mul, add, add
}

TEST(Autodiff, LeavesOutWhatNoGradientReaches) {
  Graph g;
  const ValueId table = g.add_value("table", matrix(7, 4));
  g.inputs = {g.add_value("ids", {Dtype::i32, {{"", 5}}})};
  g.params = {table, g.add_value("idle", matrix(2, 2))};
  g.outputs = {g.emit1("embedding", {table, g.inputs[0]})};
  const Graph joint = differentiate(g);
  EXPECT_EQ(joint.d_inputs[0], kNone);
  EXPECT_EQ(joint.d_params[1], kNone);
  EXPECT_EQ(producer(joint, joint.d_params[0]).op, "embedding_grad");
}

// Nothing is computed for a frozen parameter, and nothing below the first trained one.
TEST(Autodiff, ComputesNothingForFrozenParameters) {
  const auto phases = [](const Graph& joint) {
    std::map<std::string, int> count;
    for (const Node& node : joint.nodes)
      if (node.phase != Phase::F) ++count[node.op + " " + to_string(node.phase)];
    return count;
  };
  using Count = std::map<std::string, int>;
  const Graph first = differentiate(feed_forward(), {false}, {true, false});
  EXPECT_EQ(phases(first), (Count{{"matmul W", 2}, {"silu_grad W", 1}}));
  EXPECT_EQ(first.d_params[1], kNone);
  const Graph second = differentiate(feed_forward(), {false}, {false, true});
  EXPECT_EQ(phases(second), (Count{{"matmul W", 1}}));
  EXPECT_EQ(second.d_params[0], kNone);
  const Graph through = differentiate(feed_forward(), {true}, {false, false});
  EXPECT_EQ(phases(through), (Count{{"matmul B", 2}, {"silu_grad B", 1}}));
  EXPECT_NE(through.d_inputs[0], kNone);
  const Graph nothing = differentiate(feed_forward(), {false}, {false, false});
  EXPECT_EQ(phases(nothing), Count{});
  EXPECT_EQ(nothing.d_outputs[0], kNone);
}

TEST(Autodiff, RefusesAnOpWithoutGradientByItsReason) {
  Graph g;
  g.name = "loss";
  g.inputs = {g.add_value("x", matrix(2, 3))};
  g.outputs = {g.emit1("sum_squares", {g.inputs[0]})};
  try {
    differentiate(g);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "block 'loss': op 'sum_squares' has no gradient: it is only used "
                 "in updates");
  }
}

TEST(Autodiff, RefusesToDifferentiateTwice) {
  const Graph joint = differentiate(feed_forward());
  EXPECT_THROW(differentiate(joint), std::logic_error);
}

}  // namespace
}  // namespace plait
