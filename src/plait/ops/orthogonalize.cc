// orthogonalize: steps of the quintic Newton-Schulz iteration on whole matrices, which bring all
// singular values near 1 (Jordan et al., 2024; as torch.optim.Muon):
//   X = x / max(eps, Frobenius norm of x);  then  A = X XT,  X = a X + (b A + c A A) X
// on the transposed matrix when it is tall, so that A is small.
//   x [R, C] -> [R, C], or of each slice of x [E, R, C]
#include "plait/ops/gemm_scratch.h"
#include "plait/ops/ops.h"

namespace plait {
namespace {

struct Shape {
  int64_t slices, rows, columns, small, large;
};
template <class Dims>
Shape shape_of(const Dims& dims, size_t rank) {
  Shape s{rank == 3 ? dims(0) : 1, dims(rank - 2), dims(rank - 1), 0, 0};
  s.small = std::min(s.rows, s.columns);
  s.large = std::max(s.rows, s.columns);
  return s;
}
Shape shape_of(const TensorType& t) {
  return shape_of([&](size_t d) { return t.dims[d].size; }, t.dims.size());
}
Shape shape_of(const TensorView& v) {
  return shape_of([&](size_t d) { return v.dims[d]; }, static_cast<size_t>(v.rank));
}

// y = f x + m x for square m [n, n], x and y [n, k].
template <class T>
void add_product(T f, const T* m, const T* x, T* y, int64_t n, int64_t k) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) {
      T sum = f * x[i * k + j];
      for (int64_t l = 0; l < n; ++l) sum += m[i * n + l] * x[l * k + j];
      y[i * k + j] = sum;
    }
}

// One step from x [n, k] to y [n, k]; gram and poly [n, n] are scratch.
template <class T>
void iterate(const Attrs& attrs, const T* x, T* y, T* gram, T* poly, int64_t n, int64_t k) {
  const T a = T(attr(attrs, "a")), b = T(attr(attrs, "b")), c = T(attr(attrs, "c"));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      T sum = T(0);
      for (int64_t l = 0; l < k; ++l) sum += x[i * k + l] * x[j * k + l];
      gram[i * n + j] = sum;
    }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      T sum = T(0);
      for (int64_t l = 0; l < n; ++l) sum += gram[i * n + l] * gram[l * n + j];
      poly[i * n + j] = b * gram[i * n + j] + c * sum;
    }
  add_product(a, poly, x, y, n, k);
}

template <class T>
void reference(const KernelArgs& args) {
  using std::sqrt;
  const Shape s = shape_of(args.in[0]);
  const int64_t size = s.rows * s.columns;
  const bool tall = s.rows > s.columns;
  T* x = static_cast<T*>(args.workspace);
  T* next = x + size;
  T* gram = next + size;
  T* poly = gram + s.small * s.small;
  for (int64_t slice = 0; slice < s.slices; ++slice) {
    const T* in = args.in[0].as<T>() + slice * size;
    T* out = args.out[0].as<T>() + slice * size;
    auto at = [&](int64_t i) {  // element i of X in x
      return tall ? i % s.large * s.small + i / s.large : i;
    };
    T squares = T(0);
    for (int64_t i = 0; i < size; ++i) squares += in[i] * in[i];
    T norm = sqrt(squares);
    if (const T eps = T(attr(*args.attrs, "eps")); norm < eps) norm = eps;
    for (int64_t i = 0; i < size; ++i) x[i] = in[at(i)] / norm;
    for (int64_t step = whole_attr(*args.attrs, "steps", 1); step > 0; --step) {
      iterate(*args.attrs, x, next, gram, poly, s.small, s.large);
      std::swap(x, next);
    }
    for (int64_t i = 0; i < size; ++i) out[at(i)] = x[i];
  }
}

std::string rule(const Attrs&, const Types& in) {
  const size_t rank = in.empty() ? 2 : in[0].dims.size();
  if (rank == 2) return "r! c! -> r! c!";
  if (rank == 3) return "e r! c! -> e r! c!";
  fail("operand 0: found {} dimensions, expected 2 or 3", rank);
}

void check(const Attrs& attrs, const Types&) {
  if (whole_attr(attrs, "steps", 1) > 99)
    fail("attribute 'steps': found {}, expected 1 to 99", attr(attrs, "steps"));
  for (const char* name : {"a", "b", "c", "eps"}) attr(attrs, name);
}

int64_t flops(const Attrs& attrs, const Types& in) {
  const Shape s = shape_of(in[0]);
  const int64_t wide = checked_mul(s.small, s.large), square = checked_mul(s.small, s.small);
  const int64_t step = checked_add(checked_mul(4 * s.small, wide),  // A and the product with X
                                   checked_add(checked_mul(2 * s.small + 3, square), wide));
  const int64_t slice = checked_add(3 * wide + 1, checked_mul(whole_attr(attrs, "steps", 1), step));
  return checked_mul(s.slices, slice);
}

int64_t workspace(const Attrs&, const Types& in, int threads) {
  const Shape s = shape_of(in[0]);
  const int64_t elements =
      checked_add(checked_mul(2 * s.rows, s.columns), checked_mul(2 * s.small, s.small));
  const int64_t products =
      std::max(gemm_scratch_bytes(s.small, s.small, s.large, threads, Dtype::f32),
               gemm_scratch_bytes(s.rows, s.columns, s.small, threads, Dtype::f32));
  return checked_add(dtype_bytes(in[0].dtype, elements), products);
}

std::vector<OpSample> samples() {
  const Attrs attrs = {{"a", 3.4445}, {"b", -4.775}, {"c", 2.0315}, {"eps", 1e-7}, {"steps", 2}};
  const Extent e{"E", 3}, r{"F", 6, 2}, c{"D", 4}, one{"", 1};
  std::vector<OpSample> all;
  for (const std::vector<Extent>& dims :
       {std::vector<Extent>{r, c}, {c, r}, {one, r}, std::vector<Extent>{e, r, c}})
    all.push_back(one_sample({{Dtype::f64, dims}}, attrs)[0]);
  return all;
}

}  // namespace

OpDef orthogonalize_op() {
  OpDef op;
  op.name = "orthogonalize";
  op.attributes = {"a", "b", "c", "eps", "steps"};
  op.summary = "brings the singular values of a matrix near 1";
  op.rule = rule;
  op.check = check;
  op.no_grad = kIsUpdate;
  op.flops = flops;
  op.workspace = workspace;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  op.fast_error = 4096;  // small singular values grow by up to a^steps
  return op;
}

}  // namespace plait
