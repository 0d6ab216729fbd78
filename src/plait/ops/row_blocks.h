// Sums over rows that a team of threads computes without depending on its size: rows are added up
// in blocks whose borders are a function of their number alone, and then the blocks, in order. Ops
// whose fast kernels do so ask for `row_blocks_bytes` of workspace.
#pragma once

#include <algorithm>

#include "plait/base/dtype.h"

namespace plait {

struct RowBlocks {
  int64_t rows;   // of each block but the last
  int64_t count;  // of blocks
};

inline RowBlocks row_blocks(int64_t rows) {
  constexpr int64_t kFewestRows = 16, kMostBlocks = 64;
  const int64_t each = std::max(kFewestRows, (rows + kMostBlocks - 1) / kMostBlocks);
  return {each, (rows + each - 1) / each};
}

// One f32 row for each block; a single one is summed where its result belongs.
inline int64_t row_blocks_bytes(int64_t rows, int64_t width) {
  const int64_t count = row_blocks(rows).count;
  return count <= 1 ? 0 : dtype_bytes(Dtype::f32, checked_mul(count, width));
}

}  // namespace plait
