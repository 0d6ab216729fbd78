// matmul: y = op(a) op(b), where op transposes when the attribute trans_a or trans_b is 1.
//   y = x wT   (trans_b)   x [T, K], w [N, K] -> [T, N]      the forward layer
//   dx = dy w              dy [T, N], w [N, K] -> [T, K]
//   dw = dyT x (trans_a)   dy [T, N], x [T, K] -> [N, K]
// With the attribute wide = 1 the result is f32 where the operands are bf16.
#include "plait/ops/gemm_scratch.h"
#include "plait/ops/ops.h"

namespace plait {
namespace {

bool flag(const Attrs& attrs, const std::string& name) { return attr_or(attrs, name, 0) != 0; }

std::string rule(const Attrs& attrs, const std::vector<TensorType>&) {
  return std::string(flag(attrs, "trans_a") ? "k m, " : "m k, ") +
         (flag(attrs, "trans_b") ? "n k -> " : "k n -> ") + (flag(attrs, kWide) ? "^m n" : "m n");
}

template <class T>
void reference(const KernelArgs& args) {
  const bool ta = flag(*args.attrs, "trans_a");
  const bool tb = flag(*args.attrs, "trans_b");
  const TensorView &a = args.in[0], &b = args.in[1], &y = args.out[0];
  const auto m = y.dims[0], n = y.dims[1], k = a.dims[ta ? 0 : 1];
  const T* pa = a.as<T>();
  const T* pb = b.as<T>();
  T* py = y.as<T>();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      T sum = T(0);
      for (int64_t l = 0; l < k; ++l)
        sum += (ta ? pa[l * m + i] : pa[i * k + l]) * (tb ? pb[j * k + l] : pb[l * n + j]);
      py[i * n + j] = sum;
    }
}

struct Sizes {
  int64_t m, n, k;
};
Sizes sizes_of(const Attrs& attrs, const std::vector<TensorType>& in) {
  const bool ta = flag(attrs, "trans_a"), tb = flag(attrs, "trans_b");
  return {in[0].dims[ta ? 1 : 0].size, in[1].dims[tb ? 0 : 1].size, in[0].dims[ta ? 0 : 1].size};
}

int64_t flops(const Attrs& attrs, const std::vector<TensorType>& in) {
  const Sizes s = sizes_of(attrs, in);
  return checked_mul(2 * s.m, checked_mul(s.n, s.k));
}

int64_t workspace(const Attrs& attrs, const std::vector<TensorType>& in, int threads) {
  if (in[0].dtype == Dtype::f64) return 0;
  const Sizes s = sizes_of(attrs, in);
  return gemm_scratch_bytes(s.m, s.n, s.k, threads,
                            flag(attrs, kWide) ? wide(in[0].dtype) : in[0].dtype);
}

// dA and dB for all four layouts: with A' = op(a), B' = op(b), dA' = dY B'T, dB' = A'T dY.
void grad(GradContext& g) {
  const bool ta = flag(g.attrs(), "trans_a");
  const bool tb = flag(g.attrs(), "trans_b");
  const ValueId a = g.in(0), b = g.in(1), dy = g.d_out(0);
  auto product = [&](ValueId x, bool tx, ValueId y, bool ty) {
    Attrs attrs;
    if (tx) attrs["trans_a"] = 1;
    if (ty) attrs["trans_b"] = 1;
    return g.emit("matmul", {x, y}, attrs)[0];
  };
  if (g.needs(0)) g.add(0, ta ? product(b, tb, dy, true) : product(dy, false, b, !tb));
  if (g.needs(1)) g.add(1, tb ? product(dy, true, a, ta) : product(a, !ta, dy, false));
}

std::vector<OpSample> samples() {
  const Extent m{"T", 7}, k{"D", 6, 2}, n{"F", 5};
  std::vector<OpSample> all;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      OpSample s;
      s.in = {{Dtype::f64, ta ? std::vector<Extent>{k, m} : std::vector<Extent>{m, k}},
              {Dtype::f64, tb ? std::vector<Extent>{n, k} : std::vector<Extent>{k, n}}};
      if (ta) s.attrs["trans_a"] = 1;
      if (tb) s.attrs["trans_b"] = 1;
      all.push_back(s);
    }
  all.push_back(all.back());
  all.back().attrs[kWide] = 1;
  return all;
}

}  // namespace

OpDef matmul_op() {
  OpDef op;
  op.name = "matmul";
  op.attributes = {"trans_a", "trans_b", kWide};
  op.summary = "matrix product, either side transposed";
  op.rule = rule;
  op.grad = grad;
  op.flops = flops;
  op.workspace = workspace;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  return op;
}

}  // namespace plait
