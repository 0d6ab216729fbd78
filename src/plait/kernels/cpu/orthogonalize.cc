// f32 Newton-Schulz iteration by gemm. A tall matrix is not transposed: XT X and a product from the
// right do the same.
#include <algorithm>
#include <cmath>

#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/gemm.h"

namespace plait {

namespace {

struct Coefficients {
  float a, b, c;
};

struct Products {
  void* scratch;
  int threads;

  // c [m, n] = alpha op(a) op(b), all dense; k summands.
  void operator()(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                  const float* b, float* c) const {
    gemm(m, n, k, alpha, {a, Dtype::f32, ta ? m : k, ta}, {b, Dtype::f32, tb ? k : n, tb}, c,
         Dtype::f32, n, {}, scratch, threads);
  }
  // The same added to c.
  void add(int64_t m, int64_t n, int64_t k, float alpha, const float* a, const float* b,
           float* c) const {
    gemm(m, n, k, alpha, {a, Dtype::f32, k}, {b, Dtype::f32, n}, c, Dtype::f32, n,
         {.addend = c, .addend_ld = n}, scratch, threads);
  }
};

void scale(float by, const float* from, int64_t size, float* to) {
  for (int64_t i = 0; i < size; ++i) to[i] = by * from[i];
}

// One step from x [rows, columns] to y; gram and poly are squares of the smaller side.
void iterate(const Coefficients& by, const Products& product, const float* x, float* y, float* gram,
             float* poly, int64_t rows, int64_t columns) {
  const int64_t n = std::min(rows, columns), k = std::max(rows, columns);
  const bool tall = rows > columns;
  product(tall, !tall, n, n, k, 1, x, x, gram);
  scale(by.b, gram, n * n, poly);
  product.add(n, n, n, by.c, gram, gram, poly);
  scale(by.a, x, rows * columns, y);
  product.add(rows, columns, n, 1, tall ? x : poly, tall ? poly : x, y);
}

}  // namespace

void fast_orthogonalize(const KernelArgs& args) {
  const Attrs& attrs = *args.attrs;
  const TensorView& in = args.in[0];
  const auto last = static_cast<size_t>(in.rank - 1);
  const int64_t rows = in.dims[last - 1], columns = in.dims[last], size = rows * columns;
  const int64_t slices = in.rank == 3 ? in.dims[0] : 1, n = std::min(rows, columns);
  if (size == 0) return;
  const Coefficients by{static_cast<float>(attr(attrs, "a")), static_cast<float>(attr(attrs, "b")),
                        static_cast<float>(attr(attrs, "c"))};
  const auto steps = static_cast<int64_t>(attr(attrs, "steps"));
  float* x = static_cast<float*>(args.workspace);
  float* next = x + size;
  float* gram = next + size;
  const Products product{gram + 2 * n * n, args.threads};
  for (int64_t slice = 0; slice < slices; ++slice) {
    const float* from = in.as<float>() + slice * size;
    double squares = 0;
    for (int64_t i = 0; i < size; ++i) squares += static_cast<double>(from[i]) * from[i];
    const double norm = std::max(std::sqrt(squares), attr(attrs, "eps"));
    for (int64_t i = 0; i < size; ++i) x[i] = static_cast<float>(from[i] / norm);
    for (int64_t step = 0; step < steps; ++step) {
      iterate(by, product, x, next, gram, gram + n * n, rows, columns);
      std::swap(x, next);
    }
    std::copy_n(x, size, args.out[0].as<float>() + slice * size);
  }
}

}  // namespace plait
