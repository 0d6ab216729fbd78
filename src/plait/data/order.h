// The order of data, as functions of position: shuffles, and mixtures of several sources.
//
//   const Mixture mixture({0.7, 0.3});
//   auto [source, index] = mixture.at(12345);   // the index-th sample of that source
#pragma once

#include <cstdint>
#include <vector>

namespace plait {

// 0 to n - 1 in an order that (seed, epoch, source, purpose) decides.
struct ShuffleKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t source = 0;
  uint32_t purpose = 0;  // keeps shuffles of different things apart
};
std::vector<int64_t> shuffled(int64_t n, const ShuffleKey& key);
// In [0, n); `index` counts the draws under one key.
int64_t draw_below(int64_t n, const ShuffleKey& key, uint64_t index);

// Samples drawn from sources by weight, in a fixed order without randomness: among the first n
// samples, those of a source differ from share * n by less than 1, for every n (Tijdeman, "The
// chairman assignment problem", 1980). The order repeats after a period, so any position is found
// at once. Shares are whole numbers over the period: the smallest one (up to 2^20) that gives
// the weights to nine digits, or else 2^20.
class Mixture {
 public:
  // Throws Error unless all weights are positive, and none is less than one in 2^20.
  explicit Mixture(const std::vector<double>& weights);

  struct Place {
    int64_t source = 0, index = 0;  // index: how many samples of the source come before
  };
  Place at(int64_t sample) const;
  int64_t count(int64_t source, int64_t samples) const;  // among the first `samples`
  double share(int64_t source) const;                    // as used
  int64_t period() const { return static_cast<int64_t>(order_.size()); }

 private:
  std::vector<uint16_t> order_;                   // the source of each sample of a period
  std::vector<std::vector<uint32_t>> positions_;  // of each source in order_, ascending
};

}  // namespace plait
