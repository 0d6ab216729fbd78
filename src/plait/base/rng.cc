#include "plait/base/rng.h"

#include <cmath>

namespace plait {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k = {k[0] + 0x9E3779B9u, k[1] + 0xBB67AE85u};
  }
  return c;
}

namespace {
std::array<uint32_t, 4> block(uint64_t seed, Stream stream, uint64_t index, uint32_t substream) {
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                 static_cast<uint32_t>(stream), substream},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}
double to_unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }
uint64_t join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }
}  // namespace

uint64_t random_bits(uint64_t seed, Stream stream, uint64_t index, uint32_t substream) {
  const auto b = block(seed, stream, index, substream);
  return join(b[0], b[1]);
}

double uniform(uint64_t seed, Stream stream, uint64_t index, uint32_t substream) {
  return to_unit(random_bits(seed, stream, index, substream));
}

double normal(uint64_t seed, Stream stream, uint64_t index, uint32_t substream) {
  const auto b = block(seed, stream, index, substream);
  const double u = 1.0 - to_unit(join(b[0], b[1]));  // (0, 1], so the logarithm is finite
  const double v = to_unit(join(b[2], b[3]));
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * M_PI * v);
}

}  // namespace plait
