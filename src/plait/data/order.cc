#include "plait/data/order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plait/base/error.h"
#include "plait/base/rng.h"

namespace plait {

namespace {

constexpr int64_t kMaxPeriod = 1 << 20;
constexpr size_t kMaxSources = 1024;

uint64_t key_bits(const ShuffleKey& k) {
  const auto epoch_seed = random_bits(k.seed, Stream::data_order, static_cast<uint64_t>(k.epoch),
                                      static_cast<uint32_t>(k.source));
  return random_bits(epoch_seed, Stream::data_order, 0, k.purpose);
}

int64_t below(int64_t n, uint64_t key, uint64_t index) {
  return static_cast<int64_t>(random_bits(key, Stream::data_order, index) %
                              static_cast<uint64_t>(n));
}

// Whole numbers with sum `period` and within 1 of share * period, largest remainders first.
std::vector<int64_t> rounded(const std::vector<double>& shares, int64_t period) {
  std::vector<int64_t> whole;
  std::vector<std::pair<double, size_t>> rest;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double exact = shares[i] * static_cast<double>(period);
    whole.push_back(static_cast<int64_t>(std::floor(exact)));
    rest.emplace_back(std::floor(exact) - exact, i);
  }
  std::sort(rest.begin(), rest.end());
  int64_t missing = period - std::accumulate(whole.begin(), whole.end(), int64_t{0});
  for (size_t i = 0; missing > 0; i = (i + 1) % rest.size(), --missing) ++whole[rest[i].second];
  return whole;
}

bool exact_at(const std::vector<double>& shares, int64_t period) {
  return std::all_of(shares.begin(), shares.end(), [&](double share) {
    const double n = share * static_cast<double>(period);
    return n > 0.5 && std::abs(n - std::round(n)) <= 1e-9 * n;
  });
}

std::vector<int64_t> whole_shares(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!std::isfinite(sum)) fail("weights of data sources: their sum is {}", sum);
  std::vector<double> shares;
  for (const double w : weights) shares.push_back(w / sum);
  for (int64_t period = 1; period < kMaxPeriod; ++period)
    if (exact_at(shares, period)) {
      std::vector<int64_t> whole;
      for (const double s : shares) whole.push_back(std::llround(s * static_cast<double>(period)));
      return whole;
    }
  std::vector<int64_t> whole = rounded(shares, kMaxPeriod);
  for (size_t i = 0; i < whole.size(); ++i)
    if (whole[i] < 1)
      fail("data source {}: weight {} is less than one sample in {}; leave the source out", i,
           weights[i], kMaxPeriod);
  return whole;
}

void check(const std::vector<double>& weights) {
  if (weights.empty() || weights.size() > kMaxSources)
    fail("{} data sources; needs 1 to {}", weights.size(), kMaxSources);
  for (size_t i = 0; i < weights.size(); ++i)
    if (!(std::isfinite(weights[i]) && weights[i] > 0))
      fail("data source {}: weight {}; needs a positive number", i, weights[i]);
}

}  // namespace

std::vector<int64_t> shuffled(int64_t n, const ShuffleKey& key) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  const uint64_t bits = key_bits(key);
  for (int64_t i = n - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)],
              order[static_cast<size_t>(below(i + 1, bits, static_cast<uint64_t>(i)))]);
  return order;
}

int64_t draw_below(int64_t n, const ShuffleKey& key, uint64_t index) {
  return below(n, key_bits(key), index);
}

Mixture::Mixture(const std::vector<double>& weights) : positions_(weights.size()) {
  check(weights);
  const std::vector<int64_t> share = whole_shares(weights);
  const int64_t period = std::accumulate(share.begin(), share.end(), int64_t{0});
  const auto k = static_cast<int64_t>(share.size());
  const int64_t d = std::max<int64_t>(1, 2 * k - 2);  // all times 1/d
  for (int64_t n = 1; n <= period; ++n) {
    int64_t best = -1, best_deadline = 0;
    for (int64_t s = 0; s < k; ++s) {
      const auto taken = static_cast<int64_t>(positions_[static_cast<size_t>(s)].size());
      const int64_t a = share[static_cast<size_t>(s)];
      if (d * (a * n - taken * period) < period) continue;  // it has had its share
      // The source whose share runs ahead of it soonest: deadline / a is the smallest.
      const int64_t deadline = taken * d + d - 1;
      if (best < 0 || deadline * share[static_cast<size_t>(best)] < best_deadline * a) {
        best = s;
        best_deadline = deadline;
      }
    }
    PLAIT_CHECK(best >= 0, "no source for sample {} of {}", n, period);
    positions_[static_cast<size_t>(best)].push_back(static_cast<uint32_t>(n - 1));
    order_.push_back(static_cast<uint16_t>(best));
  }
}

int64_t Mixture::count(int64_t source, int64_t samples) const {
  const auto& at = positions_[static_cast<size_t>(source)];
  const auto in_period = std::lower_bound(at.begin(), at.end(), samples % period()) - at.begin();
  return samples / period() * static_cast<int64_t>(at.size()) + in_period;
}

Mixture::Place Mixture::at(int64_t sample) const {
  PLAIT_CHECK(sample >= 0, "sample {}", sample);
  const int64_t source = order_[static_cast<size_t>(sample % period())];
  return {source, count(source, sample)};
}

double Mixture::share(int64_t source) const {
  return static_cast<double>(positions_[static_cast<size_t>(source)].size()) /
         static_cast<double>(period());
}

}  // namespace plait
