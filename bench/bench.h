// What the benchmarks share: one call of an op on drawn operands, and batches for a session.
#pragma once

#include <string_view>
#include <vector>

#include "plait/exec/session.h"
#include "plait/ir/op.h"
#include "plait/model/model.h"

namespace plait::bench {

// Operands, results and workspace of one f32 call, and its FLOPs by the op's own record.
class Call {
 public:
  // Floating-point operands are drawn from [-1, 1); integer ones are zeros.
  Call(std::string_view op, Attrs attrs, const std::vector<TensorType>& in);
  void run(Kernel kernel);
  const OpDef& op() const { return op_; }
  double flops() const { return flops_; }
  // Result `i` of this call as operand `to` of another.
  void give(size_t i, Call& other, size_t to) const;

 private:
  TensorView memory(const TensorType& type);
  const OpDef& op_;
  Attrs attrs_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<TensorView> in_, out_;
  std::vector<double> workspace_;
  double flops_ = 0;
};

// `plait_bench elementwise [FILTER]`: kernels that memory bounds, beside the machine's own copy and
// triad. Ops whose names contain FILTER.
void elementwise_table(std::string_view filter);

// Random tokens; every slot is one sequence. The inputs are those of the named configurations.
Batch random_batch(const Model& model, int64_t microbatches);

// `bench gemm [THREADS [SECONDS]]`: gemm beside oneDNN, a table; `seconds` for each shape.
int gemm_table(int threads, double seconds);

}  // namespace plait::bench
