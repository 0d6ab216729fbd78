// Gradients added to what they join: that of a norm's input to the residual's, that of an
// embedding to the sum of its table's gradients, of which it touches the rows of its tokens only.
#include "plait/ops/fused.h"

namespace plait {
namespace {

const Extent kTokens{"T", 7}, kWidth{"D", 6};
TensorType rows() { return {Dtype::f64, {kTokens, kWidth}}; }
TensorType weight() { return {Dtype::f64, {kWidth}}; }

}  // namespace

OpDef rms_norm_grad_x_add_op() {
  OpDef op = fused_op("rms_norm_grad_x_add", "gradient of rms_norm's input, added to another",
                      "x, w, dy, r -> dx: p = rms_norm_grad_x(x, w, dy) eps=* offset=*; "
                      "dx = add(r, p)");
  op.samples = [] { return one_sample({rows(), weight(), rows(), rows()}, {{"eps", 1e-5}}); };
  return op;
}

OpDef layer_norm_grad_x_add_op() {
  OpDef op = fused_op("layer_norm_grad_x_add", "gradient of layer_norm's input, added to another",
                      "x, w, dy, r -> dx: p = layer_norm_grad_x(x, w, dy) eps=*; dx = add(r, p)");
  op.samples = [] { return one_sample({rows(), weight(), rows(), rows()}, {{"eps", 1e-5}}); };
  return op;
}

// That of the gradient alone, whose operands follow the sum.
int64_t embedding_workspace(const Attrs& attrs, const Types& in, int threads) {
  return find_op("embedding_grad").workspace(attrs, {in[1], in[2], in[3]}, threads);
}

OpDef embedding_grad_accumulate_op() {
  OpDef op = fused_op("embedding_grad_accumulate", "gradient of a table, added to a sum in place",
                      "s, table, tokens, dy -> sum: p = embedding_grad(table, tokens, dy); "
                      "sum = accumulate(s, p)");
  op.in_place = {{0, 0}};
  op.workspace = embedding_workspace;
  op.samples = [] {
    const TensorType table{Dtype::f64, {{"V", 5}, kWidth}};
    OpSample s;
    s.in = {table, table, {Dtype::i32, {kTokens}}, rows()};
    s.integers = [](size_t, int64_t i) { return static_cast<int32_t>(i * 3 % 5); };
    s.unused = {1};
    return std::vector<OpSample>{s};
  };
  return op;
}

}  // namespace plait
