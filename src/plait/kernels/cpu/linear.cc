// matmul, and products with what surrounds them (ops/fused_linear.cc): one pass of gemm, which
// takes every layout as it is and adds bias and addend while it writes.
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/gemm.h"

namespace plait {

namespace {

Matrix matrix(const TensorView& x, bool transposed) {
  return {x.data, x.dtype, std::max<int64_t>(1, x.dims[1]), transposed};
}

void multiply(const KernelArgs& args, const TensorView& x, const TensorView& w,
              const Epilogue& epilogue) {
  const bool ta = attr_or(*args.attrs, "trans_a", 0) != 0;
  const bool tb = attr_or(*args.attrs, "trans_b", 0) != 0;
  const TensorView& y = args.out[0];
  gemm(y.dims[0], y.dims[1], x.dims[ta ? 0 : 1], 1, matrix(x, ta), matrix(w, tb), y.data, y.dtype,
       std::max<int64_t>(1, y.dims[1]), epilogue, args.workspace, args.threads);
}

Epilogue adding(const TensorView& addend) {
  Epilogue e;
  e.addend = addend.data;
  e.addend_dtype = addend.dtype;
  e.addend_ld = std::max<int64_t>(1, addend.dims[1]);
  return e;
}

}  // namespace

void fast_matmul(const KernelArgs& args) { multiply(args, args.in[0], args.in[1], {}); }

void fast_linear_bias(const KernelArgs& args) {
  Epilogue e;
  e.bias = args.in[2].as<float>();
  multiply(args, args.in[0], args.in[1], e);
}

void fast_linear_add(const KernelArgs& args) {
  multiply(args, args.in[0], args.in[1], adding(args.in[2]));
}

void fast_linear_bias_add(const KernelArgs& args) {
  Epilogue e = adding(args.in[3]);
  e.bias = args.in[2].as<float>();
  multiply(args, args.in[0], args.in[1], e);
}

void fast_matmul_accumulate(const KernelArgs& args) {
  multiply(args, args.in[1], args.in[2], adding(args.in[0]));
}

}  // namespace plait
