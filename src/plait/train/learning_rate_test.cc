#include "plait/train/learning_rate.h"

#include <gmock/gmock.h>

#include <cmath>

#include "plait/base/error.h"

namespace plait {
namespace {

LearningRate config(const std::string& kind) {
  LearningRate c;
  c.kind = kind;
  c.peak = 2;
  c.steps = 100;
  c.warmup_steps = 10;
  c.final_ratio = 0.1;
  return c;
}

TEST(LearningRate, WarmsUpAndEndsAtItsFinalRatio) {
  for (const std::string& kind : learning_rate_kinds()) {
    const LearningRate c = config(kind);
    check_learning_rate(c);
    EXPECT_DOUBLE_EQ(learning_rate(c, 1), 0.2) << kind;
    EXPECT_DOUBLE_EQ(learning_rate(c, 5), 1) << kind;
    EXPECT_DOUBLE_EQ(learning_rate(c, 10), 2) << kind;
    EXPECT_DOUBLE_EQ(learning_rate(c, 100), kind == "constant" ? 2 : 0.2) << kind;
    EXPECT_EQ(learning_rate(c, 1000), learning_rate(c, 100)) << kind;
    for (int64_t step = 10; step < 100; ++step)
      EXPECT_GE(learning_rate(c, step), learning_rate(c, step + 1)) << kind << " " << step;
  }
}

TEST(LearningRate, FallsAsItsKindSays) {
  EXPECT_DOUBLE_EQ(learning_rate(config("constant"), 55), 2);
  EXPECT_NEAR(learning_rate(config("linear"), 55), 1.1, 1e-12);
  EXPECT_NEAR(learning_rate(config("linear"), 28), 2 - 1.8 * 0.2, 1e-12);
  EXPECT_NEAR(learning_rate(config("cosine"), 55), 1.1, 1e-12);
  EXPECT_NEAR(learning_rate(config("cosine"), 40), 0.2 + 1.8 * 0.75, 1e-12);
}

TEST(LearningRate, WarmUpStableDecay) {
  LearningRate c = config("wsd");
  for (const int64_t step : {11, 50, 80}) EXPECT_EQ(learning_rate(c, step), 2) << step;
  EXPECT_NEAR(learning_rate(c, 81), 2 - 1.8 / 20, 1e-12);
  EXPECT_NEAR(learning_rate(c, 90), 1.1, 1e-12);
  c.decay = "cosine";
  EXPECT_NEAR(learning_rate(c, 90), 1.1, 1e-12);
  c.decay = "root";
  EXPECT_NEAR(learning_rate(c, 85), 1.1, 1e-12);
  c.decay_share = 0;  // no decay at all
  EXPECT_EQ(learning_rate(c, 100), 2);
  c.decay_share = 1;  // no stable part
  c.decay = "linear";
  EXPECT_NEAR(learning_rate(c, 55), 1.1, 1e-12);
  c.decay_share = 0.001;  // one step
  EXPECT_EQ(learning_rate(c, 99), 2);
  EXPECT_DOUBLE_EQ(learning_rate(c, 100), 0.2);
}

TEST(LearningRate, Corners) {
  for (const std::string& kind : learning_rate_kinds()) {
    LearningRate c = config(kind);
    c.warmup_steps = 0;
    EXPECT_GT(learning_rate(c, 1), 1.9) << kind;
    EXPECT_LE(learning_rate(c, 1), 2) << kind;
    c.steps = 1;  // one step is the last one
    EXPECT_DOUBLE_EQ(learning_rate(c, 1), kind == "constant" ? 2 : 0.2) << kind;
    c.warmup_steps = 1;  // and here the end of the warm-up
    EXPECT_DOUBLE_EQ(learning_rate(c, 1), 2) << kind;
    c.steps = 5;  // a warm-up that the run does not reach the end of
    c.warmup_steps = 10;
    EXPECT_DOUBLE_EQ(learning_rate(c, 5), 1) << kind;
    c.warmup_steps = 5;
    EXPECT_DOUBLE_EQ(learning_rate(c, 5), 2) << kind;
    c = config(kind);
    c.final_ratio = 0;
    EXPECT_DOUBLE_EQ(learning_rate(c, 100), kind == "constant" ? 2 : 0) << kind;
    c.final_ratio = 1;
    EXPECT_DOUBLE_EQ(learning_rate(c, 77), 2) << kind;
  }
}

std::string refusal(const LearningRate& c) {
  try {
    check_learning_rate(c);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(LearningRate, RefusesWhatCannotBe) {
  auto with = [](auto change) {
    LearningRate c;
    change(c);
    return refusal(c);
  };
  EXPECT_EQ(with([](LearningRate&) {}), "");
  EXPECT_EQ(with([](LearningRate& c) { c.kind = "cosin"; }),
            "unknown learning-rate schedule 'cosin'; known are constant, linear, cosine, wsd");
  EXPECT_EQ(with([](LearningRate& c) { c.decay = "exp"; }),
            "unknown decay 'exp'; known are linear, cosine, root");
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL})
    EXPECT_THAT(with([&](LearningRate& c) { c.peak = bad; }), testing::HasSubstr("positive"));
  EXPECT_THAT(with([](LearningRate& c) { c.final_ratio = 1.5; }), testing::HasSubstr("0 to 1"));
  EXPECT_THAT(with([](LearningRate& c) { c.decay_share = std::nan(""); }),
              testing::HasSubstr("0 to 1"));
  EXPECT_THAT(with([](LearningRate& c) { c.steps = 0; }), testing::HasSubstr("1 or more"));
  EXPECT_THAT(with([](LearningRate& c) { c.warmup_steps = -1; }), testing::HasSubstr("0 or more"));
}

}  // namespace
}  // namespace plait
