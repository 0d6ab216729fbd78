#include "plait/train/trigram.h"

#include <cmath>

#include "plait/base/error.h"

namespace plait {

double ByteTrigram::Order::mix(size_t context, unsigned char byte, double strength,
                               double shorter) const {
  if (totals[context] == 0) return shorter;
  const double prior = strength * kinds[context];
  return (counts[context * 256 + byte] + prior * shorter) / (totals[context] + prior);
}

ByteTrigram::ByteTrigram(std::string_view training) : three_(65536), two_(256), one_(1) {
  const size_t held = training.size() - training.size() / 20;
  count(training.substr(0, held), 0);
  if (held < training.size()) {
    fit(training, held);
    count(training, held);
  }
}

void ByteTrigram::count(std::string_view text, size_t begin) {
  auto add = [](Order& order, size_t context, unsigned char byte) {
    order.kinds[context] += order.counts[context * 256 + byte]++ == 0 ? 1 : 0;
    ++order.totals[context];
  };
  auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = begin; i < text.size(); ++i) {
    add(one_, 0, at(i));
    if (i >= 1) add(two_, at(i - 1), at(i));
    if (i >= 2) add(three_, at(i - 2) * size_t{256} + at(i - 1), at(i));
  }
}

// One number at a time over a grid, twice around.
void ByteTrigram::fit(std::string_view text, size_t begin) {
  constexpr double kGrid[] = {0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5};
  for (int round = 0; round < 2; ++round)
    for (double& s : strength_) {
      double best = s, least = INFINITY;
      for (const double candidate : kGrid) {
        s = candidate;
        const double nats =
            nats_per_byte(text, static_cast<int64_t>(begin), static_cast<int64_t>(text.size()));
        if (nats < least) {
          least = nats;
          best = candidate;
        }
      }
      s = best;
    }
}

double ByteTrigram::probability(unsigned char a, unsigned char b, unsigned char byte) const {
  const double p1 = one_.mix(0, byte, strength_[2], 1.0 / 256);
  const double p2 = two_.mix(b, byte, strength_[1], p1);
  return three_.mix(a * size_t{256} + b, byte, strength_[0], p2);
}

double ByteTrigram::nats_per_byte(std::string_view text, int64_t begin, int64_t end) const {
  PLAIT_CHECK(0 <= begin && begin < end && end <= static_cast<int64_t>(text.size()),
              "bytes {} to {} of {}", begin, end, text.size());
  auto at = [&](int64_t i) {
    return i < 0 ? static_cast<unsigned char>('\n')
                 : static_cast<unsigned char>(text[static_cast<size_t>(i)]);
  };
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum -= std::log(probability(at(i - 2), at(i - 1), at(i)));
  return sum / static_cast<double>(end - begin);
}

}  // namespace plait
