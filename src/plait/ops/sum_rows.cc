// sum_rows: y = sum over tokens of x   x [T, N] -> [N]
#include "plait/ops/ops.h"
#include "plait/ops/row_blocks.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  const int64_t tokens = args.in[0].dims[0], n = args.in[0].dims[1];
  const T* x = args.in[0].as<T>();
  T* y = args.out[0].as<T>();
  std::fill_n(y, n, T(0));
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < n; ++j) y[j] += x[t * n + j];
}

}  // namespace

OpDef sum_rows_op() {
  OpDef op;
  op.name = "sum_rows";
  op.summary = "sum over tokens, the gradient of a bias";
  op.rule = fixed_rule<"t n -> ^n">;
  op.no_grad = "it is only used for the gradients of biases";
  op.flops = per_element<1>;
  op.workspace = [](const Attrs&, const Types& in, int) {
    return row_blocks_bytes(in[0].dims[0].size, in[0].dims[1].size);
  };
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return one_sample({{Dtype::f64, {{"T", 7}, {"F", 6, 2}}}}); };
  return op;
}

}  // namespace plait
