#include "plait/infer/generate.h"

#include <gtest/gtest.h>

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

TEST(Generator, SameSeedSameTextAndWindowSlides) {
  const Model model = load_model("llama-tiny", {1, 12}, Head::logits);
  Generator generator(model, initial_parameters(model, 3));
  const std::string prompt = "\1\2\3\4";
  const std::string a = generator.generate(prompt, {30, 1.0, 5});
  ASSERT_EQ(a.size(), 30u);
  EXPECT_EQ(a, generator.generate(prompt, {30, 1.0, 5}));
  EXPECT_NE(a, generator.generate(prompt, {30, 1.0, 6}));
  // Only the last 12 bytes count.
  EXPECT_EQ(generator.generate(std::string(20, '\7') + a.substr(0, 12), {5, 0, 1}),
            generator.generate(a.substr(0, 12), {5, 0, 1}));
}

TEST(Generator, RefusesBadPrompts) {
  const Model model = load_model("llama-tiny", {1, 12}, Head::logits);
  Generator generator(model, initial_parameters(model, 3));
  EXPECT_THROW(generator.generate("", {}), Error);
  EXPECT_THROW(generator.generate("z", {}), Error);  // 122 of 67
  EXPECT_THROW(generator.generate("\1", {5, -1, 1}), Error);
}

}  // namespace
}  // namespace plait
