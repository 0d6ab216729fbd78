// orthogonalize against its plain reference.
#include <gtest/gtest.h>

#include "hold.h"

namespace plait {
namespace {

TEST(CpuKernels, OrthogonalizeTallWideAndStacked) {
  const Attrs attrs = {{"a", 3.4445}, {"b", -4.775}, {"c", 2.0315}, {"eps", 1e-7}, {"steps", 5}};
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{5, 5}, {64, 96}, {96, 17}, {1, 9}, {9, 1}, {3, 20, 12}}) {
    std::vector<Extent> dims;
    for (const int64_t size : sizes) dims.push_back({"", size});
    hold({find_op("orthogonalize"), attrs, {{Dtype::f32, dims}}});
  }
}

}  // namespace
}  // namespace plait
