// sum_along: y = sum over dimension `dim` of x, or of x^2 when `power` is 2; rank 1 to 3, the
// dimension is gone in the result.
//   x [R, C] -> [R] (dim 1) or [C] (dim 0)
#include "plait/ops/ops.h"
#include "plait/ops/row_blocks.h"

namespace plait {
namespace {

constexpr std::string_view kLetters = "abc";

template <class T>
void reference(const KernelArgs& args) {
  const auto dim = static_cast<int>(attr(*args.attrs, "dim"));
  const bool squares = attr(*args.attrs, "power") == 2;
  const TensorView& x = args.in[0];
  int64_t before = 1, behind = 1;
  const int64_t size = x.dims[static_cast<size_t>(dim)];
  for (int d = 0; d < x.rank; ++d)
    if (d != dim) (d < dim ? before : behind) *= x.dims[static_cast<size_t>(d)];
  const T* px = x.as<T>();
  T* y = args.out[0].as<T>();
  std::fill_n(y, before * behind, T(0));
  for (int64_t i = 0; i < before; ++i)
    for (int64_t k = 0; k < size; ++k)
      for (int64_t j = 0; j < behind; ++j) {
        const T v = px[(i * size + k) * behind + j];
        y[i * behind + j] += squares ? v * v : v;
      }
}

std::string rule(const Attrs& attrs, const Types& in) {
  const size_t rank = in.empty() ? 1 : in[0].dims.size();
  if (rank < 1 || rank > 3) fail("operand 0: found {} dimensions, expected 1 to 3", rank);
  const auto dim = static_cast<size_t>(whole_attr(attrs, "dim", 0));
  if (dim >= rank) fail("attribute 'dim': found {}, expected less than {}", dim, rank);
  if (const int64_t power = whole_attr(attrs, "power", 1); power > 2)
    fail("attribute 'power': found {}, expected 1 or 2", power);
  std::string letters(kLetters.substr(0, rank)), rule = letters + " -> ";
  letters.erase(dim, 1);
  return rule + (letters.empty() ? "." : letters);
}

int64_t flops(const Attrs& attrs, const Types& in) {
  return checked_mul(attr(attrs, "power") == 2 ? 2 : 1, in[0].elements());
}

int64_t workspace(const Attrs& attrs, const Types& in, int) {
  const auto dim = static_cast<size_t>(attr(attrs, "dim"));
  int64_t behind = 1;
  for (size_t d = dim + 1; d < in[0].dims.size(); ++d)
    behind = checked_mul(behind, in[0].dims[d].size);
  return row_blocks_bytes(in[0].dims[dim].size, behind);
}

std::vector<OpSample> samples() {
  std::vector<OpSample> all;
  const Extent a{"E", 3}, b{"F", 6, 2}, c{"D", 5};
  for (const std::vector<Extent>& dims : {std::vector<Extent>{c}, {b, c}, {a, b, c}})
    for (size_t dim = 0; dim < dims.size(); ++dim)
      for (const double power : {1, 2}) {
        OpSample s;
        s.in = {{Dtype::f64, dims}};
        s.attrs = {{"dim", static_cast<double>(dim)}, {"power", power}};
        all.push_back(s);
      }
  return all;
}

}  // namespace

OpDef sum_along_op() {
  OpDef op;
  op.name = "sum_along";
  op.attributes = {"dim", "power"};
  op.summary = "sum of values or of squares along one dimension";
  op.rule = rule;
  op.no_grad = kIsUpdate;
  op.flops = flops;
  op.workspace = workspace;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  return op;
}

}  // namespace plait
