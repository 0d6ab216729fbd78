#include "plait/train/trigram.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plait/base/rng.h"

namespace plait {
namespace {

// Bytes 0..3; the next one is a fixed function of the two before 9 times in 10.
std::string noisy_rule(int64_t bytes) {
  std::string s = {0, 1};
  for (int64_t i = 2; i < bytes; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool free = uniform(1, Stream::test, static_cast<uint64_t>(i)) < 0.1;
    const auto noise = random_bits(2, Stream::test, static_cast<uint64_t>(i)) % 4;
    s += static_cast<char>(free ? noise : static_cast<uint64_t>(s[at - 2] * 3 + s[at - 1] + 1) % 4);
  }
  return s;
}

TEST(ByteTrigram, ProbabilitiesSumToOne) {
  const ByteTrigram trigram(noisy_rule(2000));
  for (const auto& [a, b] :
       {std::pair(0, 1), std::pair(3, 3), std::pair(200, 1), std::pair(7, 9)}) {
    double sum = 0;
    for (int c = 0; c < 256; ++c)
      sum += trigram.probability(static_cast<unsigned char>(a), static_cast<unsigned char>(b),
                                 static_cast<unsigned char>(c));
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

TEST(ByteTrigram, ReachesTheEntropyOfATrigramSource) {
  const std::string text = noisy_rule(200000);
  const ByteTrigram trigram(std::string_view(text).substr(0, 190000));
  const double likely = 0.925, other = 0.025;  // the noise may agree with the rule
  const double entropy = -likely * std::log(likely) - 3 * other * std::log(other);
  EXPECT_NEAR(trigram.nats_per_byte(text, 190000, 200000), entropy, 0.02);
}

TEST(ByteTrigram, UnseenBytesCostSomethingFinite) {
  const ByteTrigram trigram("abababababababababababababababababababab");
  const double nats = trigram.nats_per_byte("zq", 0, 2);
  EXPECT_GT(nats, std::log(256.0) / 2);
  EXPECT_LT(nats, 12);
}

}  // namespace
}  // namespace plait
