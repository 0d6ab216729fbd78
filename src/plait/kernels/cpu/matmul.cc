// matmul of f32 and of bf16: the layouts of every transposition go to gemm as they are.
#include <dnnl.h>

#include "plait/kernels/cpu/gemm.h"
#include "plait/kernels/cpu/kernels.h"

namespace plait {

void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  const dnnl_status_t status =
      dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (status != dnnl_success)
    fail("oneDNN sgemm of {} x {} x {} failed with status {}", m, n, k, static_cast<int>(status));
}

void fast_matmul(const KernelArgs& args) {
  const bool ta = attr_or(*args.attrs, "trans_a", 0) != 0;
  const bool tb = attr_or(*args.attrs, "trans_b", 0) != 0;
  const TensorView &a = args.in[0], &b = args.in[1], &y = args.out[0];
  const int64_t m = y.dims[0], n = y.dims[1], k = a.dims[ta ? 0 : 1];
  gemm(m, n, k, 1, {a.data, a.dtype, a.dims[1], ta}, {b.data, b.dtype, b.dims[1], tb}, y.data,
       y.dtype, n, {}, args.workspace, args.threads);
}

}  // namespace plait
