// A stream of draws for random tests: the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plait/base/rng.h"

namespace plait {

class Draw {
 public:
  explicit Draw(uint64_t seed, uint32_t substream = 0) : seed_(seed), substream_(substream) {}
  int64_t below(int64_t n) {  // uniform in [0, n)
    return static_cast<int64_t>(random_bits(seed_, Stream::test, next_++, substream_) %
                                static_cast<uint64_t>(n));
  }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  double gauss() { return normal(seed_, Stream::test, next_++, substream_); }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }

 private:
  uint64_t seed_, next_ = 0;
  uint32_t substream_;
};

}  // namespace plait
