#include "plait/data/order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plait/base/error.h"

namespace plait {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Shuffled, IsAPermutationThatEveryPartOfTheKeyChanges) {
  const ShuffleKey key{7, 2, 1, 3};
  std::vector<int64_t> order = shuffled(1000, key);
  EXPECT_EQ(order, shuffled(1000, key));
  for (const ShuffleKey& other : {ShuffleKey{8, 2, 1, 3}, ShuffleKey{7, 3, 1, 3},
                                  ShuffleKey{7, 2, 2, 3}, ShuffleKey{7, 2, 1, 4}})
    EXPECT_NE(order, shuffled(1000, other));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_TRUE(shuffled(0, key).empty());
}

TEST(Shuffled, PutsEveryElementEverywhereEquallyOften) {
  std::vector<std::vector<int>> counts(4, std::vector<int>(4));
  for (int64_t epoch = 0; epoch < 8000; ++epoch) {
    const auto order = shuffled(4, {1, epoch, 0, 0});
    for (size_t i = 0; i < 4; ++i) ++counts[i][static_cast<size_t>(order[i])];
  }
  for (const auto& row : counts)
    for (const int n : row) EXPECT_NEAR(n, 2000, 200);  // 5 standard deviations
}

class MixtureOf : public testing::TestWithParam<std::vector<double>> {};

TEST_P(MixtureOf, KeepsToItsSharesAfterAnyNumberOfSamples) {
  const std::vector<double>& weights = GetParam();
  const Mixture mixture(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> counts(weights.size());
  const int64_t samples = std::min<int64_t>(3 * mixture.period(), 200000);
  for (int64_t n = 0; n < samples; ++n) {
    const Mixture::Place place = mixture.at(n);
    auto& count = counts[static_cast<size_t>(place.source)];
    ASSERT_EQ(place.index, count);
    ++count;
    for (size_t s = 0; s < weights.size(); ++s) {
      const auto i = static_cast<int64_t>(s);
      ASSERT_LT(
          std::abs(static_cast<double>(counts[s]) - mixture.share(i) * static_cast<double>(n + 1)),
          1)
          << "source " << s << " after " << n + 1;
      ASSERT_EQ(mixture.count(i, n + 1), counts[s]);
      ASSERT_NEAR(mixture.share(i), weights[s] / sum, 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, MixtureOf,
                         testing::Values(std::vector<double>{3}, std::vector<double>{1, 1},
                                         std::vector<double>{0.7, 0.2, 0.1},
                                         std::vector<double>{1, 1, 1, 1, 1, 1, 1},
                                         std::vector<double>{0.6, 0.1, 0.1, 0.1, 0.05, 0.05},
                                         std::vector<double>{1000, 1, 1},
                                         std::vector<double>{M_PI, M_E, M_SQRT2}));

TEST(Mixture, FindsTheSmallestPeriod) {
  EXPECT_EQ(Mixture({5}).period(), 1);
  EXPECT_EQ(Mixture({0.7, 0.2, 0.1}).period(), 10);
  EXPECT_EQ(Mixture({1, 1, 1}).period(), 3);
  EXPECT_LE(Mixture({M_PI, 1}).period(), 1 << 20);
}

TEST(Mixture, RefusesWhatIsNoWeight) {
  EXPECT_THAT([] { Mixture({1, 0}); }, ThrowsMessage<Error>(HasSubstr("source 1: weight 0")));
  EXPECT_THAT([] { Mixture({-1}); }, ThrowsMessage<Error>(HasSubstr("source 0: weight -1")));
  EXPECT_THAT([] { Mixture({1, NAN}); }, ThrowsMessage<Error>(HasSubstr("weight nan")));
  EXPECT_THAT([] { Mixture({1e308, 1e308}); }, ThrowsMessage<Error>(HasSubstr("sum is inf")));
  EXPECT_THAT(
      [] {
        Mixture({1, 1e-9});
      },
      ThrowsMessage<Error>(HasSubstr("less than one sample in 1048576")));
  EXPECT_THAT([] { Mixture({}); }, ThrowsMessage<Error>(HasSubstr("0 data sources")));
}

}  // namespace
}  // namespace plait
