// A few random plans and planted faults inside the unit tests, so that sanitizers see them too;
// plait_harness runs hundreds.
#include "harness.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

TEST(Harness, RandomPlansEqualOneRank) {
  int passed = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const Case c = random_case(seed);
    const CaseResult r = run_case(c, seed % 4 == 0 ? Dtype::f32 : Dtype::f64);
    EXPECT_NE(r.outcome, Outcome::failed) << print_case(c) << r.what;
    passed += r.outcome == Outcome::passed ? 1 : 0;
  }
  EXPECT_EQ(passed, 6);
}

TEST(Harness, PlantedFaultsAreCaught) {
  MutantTally tally;
  for (uint64_t seed = 40; seed < 42; ++seed)
    if (run_case(random_case(seed)).outcome == Outcome::passed)
      plant_mutants(random_case(seed), 6, tally);
  int64_t planted = 0;
  for (const auto& [kind, t] : tally.by_kind) planted += t[0];
  EXPECT_GE(planted, 10);
  EXPECT_TRUE(tally.survivors.empty()) << tally.survivors[0];
}

TEST(Harness, ItsOwnComparisonCanFail) {
  // A learning rate of the layout that is off by one part in a million.
  const Case c = random_case(3);
  Truth truth = make_truth(c);
  const Programs programs = lower(truth.model, c.plan, harness_options()).programs;
  SessionOptions options;
  EXPECT_EQ(compare_step(programs, truth, options), "");
  truth.batch.step["hyper"].as<double>()[0] *= 1 + 1e-6;
  EXPECT_NE(compare_step(programs, truth, options).find("parameter"), std::string::npos);
  truth = make_truth(c);
  HostTensor& g = truth.reference.gradients.begin()->second;
  g.as<double>()[0] += 1e-6 * (1 + norm(g));
  EXPECT_NE(compare_step(programs, truth, options).find("gradient of"), std::string::npos);
}

TEST(Harness, CasesPrintAndParseBack) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const std::string text = print_case(random_case(seed));
    EXPECT_EQ(print_case(parse_case(text, "test")), text);
  }
}

}  // namespace
}  // namespace plait
