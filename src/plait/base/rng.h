// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011). A draw is a pure function of (seed, stream, index), so it never depends
// on the rank, the layout or what was drawn before.
//
//   double u = uniform(seed, Stream::data_order, step * batch + sample);
#pragma once

#include <array>
#include <cstdint>

namespace plait {

enum class Stream : uint32_t { parameters = 1, data_order = 2, sampling = 3, test = 4 };

// The raw generator: 128 bits of counter, 64 bits of key -> 128 bits.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// 64 bits for (seed, stream, substream, index).
uint64_t random_bits(uint64_t seed, Stream stream, uint64_t index, uint32_t substream = 0);
// In [0, 1), with 53 bits.
double uniform(uint64_t seed, Stream stream, uint64_t index, uint32_t substream = 0);
// Standard normal (Box-Muller over one Philox block).
double normal(uint64_t seed, Stream stream, uint64_t index, uint32_t substream = 0);

}  // namespace plait
