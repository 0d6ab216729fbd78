#include "plait/infer/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plait/base/rng.h"
#include "plait/model/families.h"

namespace plait {
namespace {

TEST(PickToken, GreedyTakesTheFirstLargest) {
  EXPECT_EQ(pick_token({0, 3, 1, 3}, 0, 0.99), 1);
  EXPECT_THROW(pick_token({0, NAN}, 0, 0), Error);
}

TEST(PickToken, FollowsTheSoftmax) {
  const std::vector<double> logits{std::log(1.0), std::log(2.0), std::log(5.0)};
  std::vector<double> seen(3), cold(3);
  for (uint64_t i = 0; i < 20000; ++i) {
    const double draw = uniform(1, Stream::test, i);
    seen[static_cast<size_t>(pick_token(logits, 1, draw))] += 1.0 / 20000;
    cold[static_cast<size_t>(pick_token(logits, 0.5, draw))] += 1.0 / 20000;
  }
  EXPECT_NEAR(seen[0], 1.0 / 8, 0.01);
  EXPECT_NEAR(seen[2], 5.0 / 8, 0.01);
  EXPECT_NEAR(cold[0], 1.0 / 30, 0.01);
  EXPECT_NEAR(cold[2], 25.0 / 30, 0.01);
  EXPECT_EQ(pick_token(logits, 1, std::nextafter(1.0, 0.0)), 2);
}

TEST(Generator, SameSeedSameTokensAndWindowSlides) {
  const Model model = load_model("llama-tiny", {1, 12}, Head::logits);
  Generator generator(model, initial_parameters(model, 3));
  const std::vector<int32_t> prompt = {1, 2, 3, 4};
  const std::vector<int32_t> a = generator.generate(prompt, {30, 1.0, 5, {}});
  ASSERT_EQ(a.size(), 30u);
  EXPECT_EQ(a, generator.generate(prompt, {30, 1.0, 5, {}}));
  EXPECT_NE(a, generator.generate(prompt, {30, 1.0, 6, {}}));
  // Only the last 12 tokens count.
  const std::vector<int32_t> window(a.begin(), a.begin() + 12);
  std::vector<int32_t> longer(20, 7);
  longer.insert(longer.end(), window.begin(), window.end());
  EXPECT_EQ(generator.generate(longer, {5, 0, 1, {}}), generator.generate(window, {5, 0, 1, {}}));
}

TEST(Generator, EndsBeforeAStopToken) {
  const Model model = load_model("llama-tiny", {1, 12}, Head::logits);
  Generator generator(model, initial_parameters(model, 3));
  const std::vector<int32_t> all = generator.generate(std::vector<int32_t>{1}, {30, 1.0, 5, {}});
  const std::vector<int32_t> some =
      generator.generate(std::vector<int32_t>{1}, {30, 1.0, 5, {all[7]}});
  const auto first = std::find(all.begin(), all.end(), all[7]);
  EXPECT_EQ(some, std::vector<int32_t>(all.begin(), first));
}

TEST(Generator, EndsWhenItsListenerHasSeenEnough) {
  const Model model = load_model("llama-tiny", {1, 12}, Head::logits);
  Generator generator(model, initial_parameters(model, 3));
  int seen = 0;
  const std::vector<int32_t> some = generator.generate(std::vector<int32_t>{1}, {30, 1.0, 5, {}},
                                                       [&](int32_t) { return ++seen < 4; });
  EXPECT_EQ(some.size(), 4u);
}

TEST(Generator, RefusesBadPrompts) {
  const Model model = load_model("llama-tiny", {1, 12}, Head::logits);
  Generator generator(model, initial_parameters(model, 3));
  EXPECT_THROW(generator.generate({}, {}), Error);
  EXPECT_THROW(generator.generate(std::vector<int32_t>{67}, {}), Error);
  EXPECT_THROW(generator.generate(std::vector<int32_t>{-1}, {}), Error);
  EXPECT_THROW(generator.generate(std::vector<int32_t>{1}, {5, -1, 1, {}}), Error);
}

}  // namespace
}  // namespace plait
