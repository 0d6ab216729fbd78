// matmul against its plain reference.
#include <gtest/gtest.h>

#include "hold.h"

namespace plait {
namespace {

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
                  {}});
          }
}

}  // namespace
}  // namespace plait
