// Fast kernels against the plain references, within the error that each op states: element by
// element, |fast - reference in f64| <= fast_error x epsilon x sum of absolute contributions. For
// the sum, the reference runs on the absolute values where an op is a sum of products, and the
// largest result stands for it elsewhere.
#include "plait/kernels/cpu/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "plait/base/rng.h"

namespace plait {
namespace {

// Where operand 0 lies in its whole along dimension 1; size 0: it is whole.
struct Place {
  int64_t begin = 0, size = 0;
};

struct Call {
  const OpDef& op;
  Attrs attrs;
  std::vector<TensorType> in;
  std::vector<std::vector<double>> values;  // of the operands; integers too
  Place place = {};
};

std::vector<std::vector<double>> run(const Call& c, Kernel kernel, Dtype dtype) {
  std::vector<TensorType> types = c.in;
  for (TensorType& t : types)
    if (t.dtype != Dtype::i32) t.dtype = dtype;
  // A rank's part of the heads would not pass the checks, which are of whole tensors.
  const std::vector<TensorType> results =
      c.op.infer != nullptr ? c.op.infer(c.attrs, types) : infer_types(c.op, c.attrs, types);
  std::vector<std::vector<std::byte>> memory;
  auto view = [&](const TensorType& t) {
    memory.emplace_back(static_cast<size_t>(t.bytes()) + 64, std::byte{0xff});
    TensorView v;
    v.data = memory.back().data();
    v.dtype = t.dtype;
    v.rank = static_cast<int>(t.dims.size());
    for (size_t d = 0; d < t.dims.size(); ++d) v.dims[d] = v.global[d] = t.dims[d].size;
    return v;
  };
  std::vector<TensorView> in, out;
  for (size_t i = 0; i < types.size(); ++i) {
    in.push_back(view(types[i]));
    for (size_t k = 0; k < c.values[i].size(); ++k) {
      if (types[i].dtype == Dtype::i32)
        in[i].as<int32_t>()[k] = static_cast<int32_t>(c.values[i][k]);
      else if (dtype == Dtype::f32)
        in[i].as<float>()[k] = static_cast<float>(c.values[i][k]);
      else
        in[i].as<double>()[k] = c.values[i][k];
    }
  }
  if (c.place.size > 0) in[0].begin[1] = c.place.begin, in[0].global[1] = c.place.size;
  for (const TensorType& t : results) out.push_back(view(t));
  std::vector<double> workspace(
      c.op.workspace == nullptr ? 8
                                : static_cast<size_t>(c.op.workspace(c.attrs, types, 1) / 8 + 8));
  kernel({&c.attrs, in, out, workspace.data()});
  std::vector<std::vector<double>> found;
  for (const TensorView& v : out) {
    found.emplace_back();
    for (int64_t k = 0; k < v.elements(); ++k)
      found.back().push_back(dtype == Dtype::f32 ? static_cast<double>(v.as<float>()[k])
                                                 : v.as<double>()[k]);
  }
  return found;
}

void hold(Call c, Kernel fast) {
  uint64_t next = 0;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const bool given = i < c.values.size() && !c.values[i].empty();
    if (i >= c.values.size()) c.values.emplace_back();
    for (int64_t k = 0; !given && k < c.in[i].elements(); ++k)
      c.values[i].push_back(static_cast<float>(2 * uniform(11, Stream::test, next++) - 1));
  }
  const auto exact = run(c, c.op.reference.f64, Dtype::f64);
  const auto found = run(c, fast, Dtype::f32);
  Call positive = c;
  for (auto& operand : positive.values)
    for (double& v : operand) v = std::abs(v);
  const bool products = c.op.name == "matmul";
  const auto contributions = products ? run(positive, c.op.reference.f64, Dtype::f64) : exact;
  for (size_t r = 0; r < exact.size(); ++r) {
    double largest = 0;
    for (const double v : exact[r]) largest = std::max(largest, std::abs(v));
    for (size_t k = 0; k < exact[r].size(); ++k) {
      const double scale = products ? contributions[r][k] : largest;
      ASSERT_LE(std::abs(found[r][k] - exact[r][k]), c.op.fast_error * std::exp2(-23) * scale)
          << c.op.name << " result " << r << " element " << k << " of " << to_string(c.in[0]);
    }
  }
}

Kernel fast_kernel(std::string_view op) {
  for (const FastKernel& k : fast_kernels())
    if (k.op == op) return k.f32;
  fail("no fast kernel for {}", op);
}

TEST(CpuKernels, MatmulEveryLayoutAndAwkwardShapes) {
  for (const int64_t m : {0, 1, 5, 64, 130})
    for (const int64_t n : {1, 7, 96})
      for (const int64_t k : {0, 1, 9, 200})
        for (const bool ta : {false, true})
          for (const bool tb : {false, true}) {
            const Extent em{"", m}, en{"", n}, ek{"", k};
            Attrs attrs;
            if (ta) attrs["trans_a"] = 1;
            if (tb) attrs["trans_b"] = 1;
            hold({find_op("matmul"),
                  attrs,
                  {{Dtype::f32, ta ? std::vector<Extent>{ek, em} : std::vector<Extent>{em, ek}},
                   {Dtype::f32, tb ? std::vector<Extent>{en, ek} : std::vector<Extent>{ek, en}}},
                  {}},
                 fast_kernel("matmul"));
          }
}

TEST(CpuKernels, OrthogonalizeTallWideAndStacked) {
  const Attrs attrs = {{"a", 3.4445}, {"b", -4.775}, {"c", 2.0315}, {"eps", 1e-7}, {"steps", 5}};
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{5, 5}, {64, 96}, {96, 17}, {1, 9}, {9, 1}, {3, 20, 12}}) {
    std::vector<Extent> dims;
    for (const int64_t size : sizes) dims.push_back({"", size});
    hold({find_op("orthogonalize"), attrs, {{Dtype::f32, dims}}, {}}, fast_kernel("orthogonalize"));
  }
}

}  // namespace
}  // namespace plait
