// Fused ops: what a record says of itself, the text that it expands to, and its reference beside
// the row of ops run one by one.
#include "plait/ir/fused.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plait/base/rng.h"

namespace plait {
namespace {

TEST(Fused, RecordsAreWhole) {
  int count = 0;
  for (const OpDef& op : all_ops()) {
    if (op.expansion == nullptr) continue;
    ++count;
    SCOPED_TRACE(op.name);
    EXPECT_FALSE(op.summary.empty());
    EXPECT_FALSE(op.no_grad.empty());
    EXPECT_TRUE(op.rule == nullptr && op.reference.f64 == nullptr && op.grad == nullptr);
    for (const OpSample& s : op.samples()) {
      const auto out = infer_types(op, s.attrs, s.in);
      EXPECT_EQ(out.size(), op.expansion->results.size());
      for (const auto& [result, operand] : op.in_place) EXPECT_EQ(out[result], s.in[operand]);
      int64_t flops = 0;
      const Graph g = expand(op, s.attrs, s.in);
      for (const Node& node : g.nodes) {
        std::vector<TensorType> types;
        for (const ValueId v : node.in) types.push_back(g.type(v));
        flops += find_op(node.op).flops(node.attrs, types);
      }
      EXPECT_EQ(flops_of(op, s.attrs, s.in), flops);
      EXPECT_THROW(infer_types(op, {{"colour", 1}}, s.in), Error);
      EXPECT_THROW(infer_types(op, s.attrs, {}), Error);
    }
  }
  EXPECT_GE(count, 10);
}

// A tensor and its view.
struct Tensor {
  explicit Tensor(const TensorType& type) : memory(static_cast<size_t>(type.bytes()) + 8) {
    view.data = memory.data();
    view.dtype = type.dtype;
    view.rank = static_cast<int>(type.dims.size());
    for (size_t d = 0; d < type.dims.size(); ++d) view.dims[d] = view.global[d] = type.dims[d].size;
  }
  std::vector<std::byte> memory;
  TensorView view;
};

void draw(Tensor& t, const OpSample& s, size_t operand, uint64_t& next) {
  for (int64_t i = 0; i < t.view.elements(); ++i) {
    if (t.view.dtype == Dtype::i32)
      t.view.as<int32_t>()[i] = s.integers(operand, i);
    else
      t.view.as<double>()[i] = 2 * uniform(3, Stream::test, next++) - 1;
  }
}

// run_reference of the whole against the nodes of its graph, each by its own reference.
TEST(Fused, ReferenceIsTheRow) {
  for (const OpDef& op : all_ops()) {
    if (op.expansion == nullptr) continue;
    SCOPED_TRACE(op.name);
    for (const OpSample& s : op.samples()) {
      const Graph g = expand(op, s.attrs, s.in);
      std::vector<Tensor> values;
      for (const Value& v : g.values) values.emplace_back(v.type);
      uint64_t next = 0;
      for (size_t i = 0; i < s.in.size(); ++i)
        draw(values[static_cast<size_t>(g.inputs[i])], s, i, next);
      std::vector<Tensor> results;
      std::vector<TensorView> in, out;
      for (const ValueId v : g.inputs) in.push_back(values[static_cast<size_t>(v)].view);
      for (const ValueId v : g.outputs) results.emplace_back(g.type(v));
      for (Tensor& t : results) out.push_back(t.view);
      run_reference({&s.attrs, in, out, nullptr, 1, &op});
      for (const Node& node : g.nodes) {
        std::vector<TensorView> from, to;
        for (const ValueId v : node.in) from.push_back(values[static_cast<size_t>(v)].view);
        for (const ValueId v : node.out) to.push_back(values[static_cast<size_t>(v)].view);
        std::vector<double> workspace(4096);
        find_op(node.op).reference.f64({&node.attrs, from, to, workspace.data()});
      }
      for (size_t r = 0; r < results.size(); ++r) {
        const TensorView& expected = values[static_cast<size_t>(g.outputs[r])].view;
        for (int64_t i = 0; i < expected.elements(); ++i)
          EXPECT_EQ(results[r].view.as<double>()[i], expected.as<double>()[i]);
      }
    }
  }
}

TEST(Fused, Bf16RunsInF32AndRoundsOnce) {
  const float x = 1.00390625F;  // 1 + 2^-8: half way between two values of bf16
  std::vector<float> in = {x, 1.01171875F, -x, 3};
  std::vector<uint16_t> out(4);
  TensorView from, to;
  from.data = in.data(), to.data = out.data();
  to.dtype = Dtype::bf16;
  from.rank = to.rank = 1;
  from.dims[0] = to.dims[0] = 4;
  const Attrs none;
  const OpDef& op = find_op("to_bf16");
  run_reference({&none, {&from, 1}, {&to, 1}, nullptr, 1, &op});
  EXPECT_THAT(out, testing::ElementsAre(0x3f80, 0x3f82, 0xbf80, 0x4040));  // ties to even
}

TEST(Fused, ElementTypesOfMixedCalls) {
  const Extent t{"T", 4}, d{"D", 6}, v{"V", 9};
  const TensorType x{Dtype::bf16, {t, d}}, weight{Dtype::f32, {d}};
  EXPECT_EQ(infer_types(find_op("rms_norm"), {{"eps", 1e-5}}, {x, weight})[0], x);
  EXPECT_THROW(infer_types(find_op("rms_norm"), {{"eps", 1e-5}}, {x, {Dtype::bf16, {d}}}), Error);
  const TensorType logits{Dtype::bf16, {t, v}}, column{Dtype::f32, {t}};
  EXPECT_EQ(infer_types(find_op("row_lse"), {}, {logits})[0], column);
  const TensorType sum{Dtype::f32, {t, d}};
  EXPECT_EQ(infer_types(find_op("accumulate"), {}, {sum, x})[0], sum);
  EXPECT_EQ(infer_types(find_op("accumulate"), {}, {sum, sum})[0], sum);
  EXPECT_THROW(infer_types(find_op("accumulate"), {}, {x, sum}), Error);
  EXPECT_EQ(infer_types(find_op("to_bf16"), {}, {sum})[0], x);
}

}  // namespace
}  // namespace plait
