#include "plait/train/watch.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plait/base/rng.h"

namespace plait {
namespace {

double drawn(uint64_t i) { return normal(1, Stream::test, i); }

TEST(SpikeWatch, TellsALossThatStandsOut) {
  SpikeWatch watch;
  for (uint64_t i = 0; i < 200; ++i) EXPECT_FALSE(watch.see(3 + 0.1 * drawn(i))) << i;
  const auto spike = watch.see(5);
  ASSERT_TRUE(spike);
  EXPECT_NEAR(spike->expected, 3, 0.1);
  EXPECT_GT(spike->deviations, 10);
  EXPECT_TRUE(watch.see(5)) << "a spike must not hide the next";
  EXPECT_FALSE(watch.see(3));
}

TEST(SpikeWatch, IsQuietWhileTheLossFallsAndAtTheStart) {
  SpikeWatch watch;
  EXPECT_FALSE(watch.see(10));
  EXPECT_FALSE(watch.see(1000));
  SpikeWatch falling;
  for (int i = 0; i < 300; ++i) EXPECT_FALSE(falling.see(2 + 8 * std::exp(-i / 50.0))) << i;
}

TEST(SpikeWatch, GoesOnFromItsState) {
  SpikeWatch a, b;
  for (uint64_t i = 0; i < 60; ++i) a.see(3 + 0.1 * drawn(i));
  b.restore(nlohmann::json::parse(a.state().dump()));
  for (uint64_t i = 60; i < 90; ++i) {
    const double loss = 3 + 0.3 * drawn(i);
    EXPECT_EQ(a.see(loss).has_value(), b.see(loss).has_value());
  }
  EXPECT_EQ(a.state(), b.state());
}

// Gradients g + noise with variance s^2 / tokens in each of 50 coordinates.
TEST(NoiseScale, FindsTheBatchSizeAtWhichNoiseEqualsSignal) {
  constexpr int kSize = 50;
  constexpr double kSignal = 0.2, kNoise = 3;  // per coordinate
  uint64_t next = 0;
  auto squares = [&](int64_t tokens) {
    double sum = 0;
    for (int i = 0; i < kSize; ++i) {
      const double g = kSignal + kNoise / std::sqrt(static_cast<double>(tokens)) * drawn(next++);
      sum += g * g;
    }
    return sum;
  };
  NoiseScale scale;
  EXPECT_FALSE(scale.tokens());
  for (int i = 0; i < 400; ++i) {
    const double small = squares(64);
    scale.add(64, small, 512, squares(512));
  }
  ASSERT_TRUE(scale.tokens());
  const double expected = kNoise * kNoise / (kSignal * kSignal);
  EXPECT_NEAR(*scale.tokens(), expected, 0.3 * expected);
  scale.add(64, 1, 64, 1);  // no two sizes: says nothing
  NoiseScale again;
  again.restore(nlohmann::json::parse(scale.state().dump()));
  EXPECT_EQ(*again.tokens(), *scale.tokens());
}

TEST(EarlyStop, StopsAfterPatience) {
  EarlyStop stop(2, 0.01);
  EXPECT_FALSE(stop.see(1));
  EXPECT_FALSE(stop.see(0.995));  // no better by 0.01
  EXPECT_FALSE(stop.see(0.9));
  EXPECT_FALSE(stop.see(0.95));
  EarlyStop resumed(2, 0.01);
  resumed.restore(nlohmann::json::parse(stop.state().dump()));
  EXPECT_TRUE(resumed.see(0.9));
  EXPECT_EQ(*resumed.best(), 0.9);
  EarlyStop never;
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(never.see(1));
}

}  // namespace
}  // namespace plait
