// Fast kernels against the plain references, within the error that each op states: element by
// element, |fast - reference in f64| <= fast_error x 2^-23 x sum of absolute contributions, and
// half a unit in the last place of bf16 where a result is stored so, and bf16_error where an op
// states it. For the sum, the reference runs on the absolute values where an op is a sum of
// products, and the largest result stands for it elsewhere.
//
//   hold({find_op("silu"), {}, {{Dtype::f32, {{"T", 5}}}}});
//
// Held are f32 and bf16, if the kernel has both; every instruction set that the machine has; and 1,
// 2 and 3 threads, which must agree in every bit, as must results in the place of their operands.
// Results and workspace begin poisoned, and nothing may be written behind them.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "plait/kernels/cpu/cpu.h"

namespace plait {

// Where an operand lies in its whole along one dimension; size 0: it is whole.
struct KernelPlace {
  size_t dim = 1;
  int64_t begin = 0, size = 0;
};

struct KernelCall {
  const OpDef& op;
  Attrs attrs;
  std::vector<TensorType> in;
  std::vector<std::vector<double>> values = {};                // of the operands; left out: drawn
  KernelPlace place = {};                                      // of operand 0
  std::function<int32_t(size_t, int64_t)> integers = nullptr;  // as in OpSample
  double low = -1, high = 1;                                   // of what is drawn
  std::vector<size_t> unused = {};                             // operands that stay poisoned
};

const FastKernel& fast_kernel(std::string_view op);

// How a kernel is called: `narrow` is the type of all operands and results that the op's rule does
// not call wide.
struct KernelRun {
  Dtype narrow = Dtype::f32;
  int threads = 1;
  bool in_place = false;  // results lie where the op's record says that they may
};
std::vector<std::vector<double>> run_kernel(const KernelCall& call, Kernel kernel, KernelRun how);

// The call with its operands drawn, each representable in its type.
KernelCall with_values(KernelCall call, Dtype narrow);

// f() with every instruction set that this machine has, one after the other.
void on_every_target(const std::function<void(const char* target)>& f);

// Fails the test where `kernel` is not what the header says.
void hold(const KernelCall& call, const FastKernel& kernel);
inline void hold(const KernelCall& call) { hold(call, fast_kernel(call.op.name)); }

}  // namespace plait
