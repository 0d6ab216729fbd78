// f32 Newton-Schulz iteration by oneDNN's sgemm. A tall matrix is not transposed: XT X and a
// product from the right do the same.
#include <algorithm>
#include <cmath>

#include "plait/kernels/cpu/kernels.h"

namespace plait {

namespace {

struct Coefficients {
  float a, b, c;
};

// One step from x [rows, columns] to y; gram and poly are squares of the smaller side.
void iterate(const Coefficients& by, const float* x, float* y, float* gram, float* poly,
             int64_t rows, int64_t columns) {
  const int64_t n = std::min(rows, columns), k = std::max(rows, columns);
  const bool tall = rows > columns;
  sgemm(tall, !tall, n, n, k, 1, x, columns, x, columns, 0, gram, n);
  std::copy_n(gram, n * n, poly);
  sgemm(false, false, n, n, n, by.c, gram, n, gram, n, by.b, poly, n);
  std::copy_n(x, rows * columns, y);
  if (tall)
    sgemm(false, false, rows, columns, n, 1, x, columns, poly, n, by.a, y, columns);
  else
    sgemm(false, false, rows, columns, n, 1, poly, n, x, columns, by.a, y, columns);
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
  for (int64_t slice = 0; slice < slices; ++slice) {
    const float* from = in.as<float>() + slice * size;
    double squares = 0;
    for (int64_t i = 0; i < size; ++i) squares += static_cast<double>(from[i]) * from[i];
    const double norm = std::max(std::sqrt(squares), attr(attrs, "eps"));
    for (int64_t i = 0; i < size; ++i) x[i] = static_cast<float>(from[i] / norm);
    for (int64_t step = 0; step < steps; ++step) {
      iterate(by, x, next, gram, gram + n * n, rows, columns);
      std::swap(x, next);
    }
    std::copy_n(x, size, args.out[0].as<float>() + slice * size);
  }
}

}  // namespace plait
