#include "plait/exec/limits.h"

#include <gtest/gtest.h>

#include "plait/model/families.h"
#include "plait/program/lower.h"

namespace plait {
namespace {

Limits round_limits() {
  Limits limits;
  limits.flops_per_second = 1e9;
  limits.bytes_per_second = 1e8;
  return limits;
}

TEST(Limits, AreMeasuredWithinTheirTime) {
  const Limits limits = measure_limits(1, Dtype::bf16);
  EXPECT_EQ(limits.threads, 1);
  EXPECT_GT(limits.flops_per_second, 1e7);
  EXPECT_GT(limits.bf16_flops_per_second, 1e7);
  EXPECT_GT(limits.bytes_per_second, 1e7);
  EXPECT_GT(limits.seconds, 0);
  EXPECT_EQ(measure_limits(1, Dtype::f32).bf16_flops_per_second, 0);
}

TEST(Limits, ACallIsBoundByFlopsOrByBytes) {
  const Model model = load_model("llama-tiny", {2, 16}, Head::loss);
  const Programs programs = lower(model, one_rank_plan(1)).programs;
  const Program& p = programs.ranks[0];
  Limits limits = round_limits();
  int adds = 0, matmuls = 0;
  for (const Action& a : p.actions) {
    const Cost c = cost_of(programs, 0, a, limits);
    if (a.kind == ActionKind::alloc || a.kind == ActionKind::free) {
      EXPECT_EQ(c.seconds, 0);
      EXPECT_EQ(c.bytes, 0);
    }
    if (a.kind == ActionKind::fill) {
      EXPECT_EQ(c.bytes, p.buffer(a.out[0]).bytes);
    }
    if (a.kind != ActionKind::op) continue;
    EXPECT_EQ(c.seconds,
              std::max(static_cast<double>(c.flops) / 1e9, static_cast<double>(c.bytes) / 1e8))
        << a.name;
    if (a.name == "add") {
      ++adds;
      EXPECT_EQ(c.bytes, 3 * p.buffer(a.out[0]).bytes);
      EXPECT_FALSE(c.compute);
    }
    if (a.name == "matmul") {
      ++matmuls;
      const TensorType &x = p.buffer(a.in[0]).local, &y = p.buffer(a.out[0]).local;
      const int64_t k = attr_or(a.attrs, "trans_a", 0) != 0 ? x.dims[0].size : x.dims[1].size;
      EXPECT_EQ(c.flops, 2 * k * y.elements());
    }
  }
  EXPECT_GT(adds + matmuls, 0);
  limits.bytes_per_second = 1e30;
  for (const Action& a : p.actions)
    if (a.kind == ActionKind::op && cost_of(programs, 0, a, limits).flops > 0) {
      EXPECT_TRUE(cost_of(programs, 0, a, limits).compute) << a.name;
    }
}

// A table of a whole vocabulary is not read for a few tokens.
TEST(Limits, TablesCountByTheirRowsInUse) {
  const Model model = load_model("llama-tiny", {1, 4}, Head::loss);
  const Programs programs = lower(model, one_rank_plan(1)).programs;
  const Program& p = programs.ranks[0];
  bool found = false;
  for (const Action& a : p.actions)
    if (a.kind == ActionKind::op && a.name == "embedding") {
      found = true;
      EXPECT_EQ(cost_of(programs, 0, a, round_limits()).bytes,
                p.buffer(a.in[1]).bytes + 2 * p.buffer(a.out[0]).bytes);
    }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace plait
