// Products with what surrounds them: a bias, a residual or another gradient, the sum of a
// parameter's gradients. Products over a split width are pending sums, to which no bias may be
// added: such rows are not fused, because a plan's communication stands between.
#include "plait/ops/fused.h"

namespace plait {
namespace {

constexpr int64_t kTokens = 7, kIn = 6, kOut = 5;

TensorType matrix(const char* a, int64_t rows, const char* b, int64_t columns) {
  return {Dtype::f64, {{a, rows}, {b, columns}}};
}
TensorType x() { return matrix("T", kTokens, "D", kIn); }
TensorType w() { return matrix("F", kOut, "D", kIn); }
TensorType y() { return matrix("T", kTokens, "F", kOut); }
TensorType bias() { return {Dtype::f64, {{"F", kOut}}}; }

const Attrs kForward = {{"trans_b", 1}};

// That of the product; operands x and w stand at `first`.
template <size_t first>
int64_t workspace(const Attrs& attrs, const Types& in, int threads) {
  return find_op("matmul").workspace(attrs, {in[first], in[first + 1]}, threads);
}

}  // namespace

OpDef linear_bias_op() {
  OpDef op = fused_op("linear_bias", "matrix product and bias",
                      "x, w, b -> y: p = matmul(x, w) trans_a=* trans_b=*; y = add_bias(p, b)");
  op.workspace = workspace<0>;
  op.samples = [] { return one_sample({x(), w(), bias()}, kForward); };
  return op;
}

OpDef linear_add_op() {
  OpDef op = fused_op("linear_add", "matrix product added to another tensor",
                      "x, w, c -> y: p = matmul(x, w) trans_a=* trans_b=*; y = add(c, p)");
  op.workspace = workspace<0>;
  op.samples = [] { return one_sample({x(), w(), y()}, kForward); };
  return op;
}

OpDef linear_bias_add_op() {
  OpDef op = fused_op("linear_bias_add", "matrix product and bias, added to another tensor",
                      "x, w, b, c -> y: p = matmul(x, w) trans_a=* trans_b=*; "
                      "q = add_bias(p, b); y = add(c, q)");
  op.workspace = workspace<0>;
  op.samples = [] { return one_sample({x(), w(), bias(), y()}, kForward); };
  return op;
}

OpDef matmul_accumulate_op() {
  OpDef op = fused_op("matmul_accumulate", "matrix product added to a sum, in place",
                      "s, x, w -> y: p = matmul(x, w) trans_a=* trans_b=*; y = accumulate(s, p)");
  op.in_place = {{0, 0}};
  op.workspace = workspace<1>;
  op.samples = [] { return one_sample({y(), x(), w()}, kForward); };
  return op;
}

}  // namespace plait
