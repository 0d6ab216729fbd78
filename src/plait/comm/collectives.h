// Collectives as fixed, named algorithms over an explicit list of ranks: rings. Each rank sends to
// the next of the list and receives from the one before; `me` is one's own position. The order of
// every sum is fixed by the algorithm, so bits do not depend on transport or timing, and all
// members end with the same bits. Bytes sent: sent_bytes() in program/.
//
// (Ring all-reduce: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", JPDC 2009.)
#pragma once

#include <vector>

#include "plait/comm/transport.h"
#include "plait/ir/op.h"

namespace plait {

struct Ring {
  std::vector<int> ranks;
  size_t me = 0;
  int next() const { return ranks[(me + 1) % ranks.size()]; }
  int previous() const { return ranks[(me + ranks.size() - 1) % ranks.size()]; }
};

// Reduces `elements` values of `data` over the ring, in place. Chunks: ring_chunk().
void ring_all_reduce(Transport& transport, const Ring& ring, std::byte* data, int64_t elements,
                     Dtype dtype, Reduce reduce);

// blocks[i] is where the part of ring member i lies in the whole tensor of this rank. One's own
// block is filled already; afterwards all are.
void ring_all_gather(Transport& transport, const Ring& ring, const std::vector<Strided>& blocks);

// Afterwards one's own block is reduced, and the others hold partial results of no use.
void ring_reduce_scatter(Transport& transport, const Ring& ring, const std::vector<Strided>& blocks,
                         Dtype dtype, Reduce reduce);

// [begin, end) of chunk `i` when `elements` are dealt out over `n`.
std::pair<int64_t, int64_t> ring_chunk(int64_t elements, int64_t n, int64_t i);

}  // namespace plait
