#include "plait/exec/measure.h"

#include <gtest/gtest.h>

#include "plait/model/families.h"
#include "plait/program/lower.h"

namespace plait {
namespace {

TEST(Measure, EveryCallIsTimedOrExtrapolated) {
  const Model model = load_model("llama-tiny", {2, 16}, Head::loss);
  const Programs one = lower(model, one_rank_plan(1)).programs;
  const StepEstimate e = measure_step(one, 10);
  EXPECT_GT(e.calls, 20);
  EXPECT_EQ(e.timed, e.calls);
  EXPECT_EQ(e.extrapolated, 0);
  EXPECT_GT(e.seconds, 0);
  EXPECT_EQ(e.rank_seconds, e.total_seconds);
  // Two micro-batches do nearly twice the work of one: all of it but the update.
  const StepEstimate two = measure_step(lower(model, one_rank_plan(2)).programs, 10);
  EXPECT_GT(two.flops, e.flops * 3 / 2);
  EXPECT_LT(two.flops, e.flops * 2);
  const StepEstimate hurried = measure_step(one, 0);
  EXPECT_GT(hurried.extrapolated, 0);
  EXPECT_EQ(hurried.timed + hurried.extrapolated, hurried.calls);
}

}  // namespace
}  // namespace plait
