// Copies between a dense global tensor and the dense part of it that a Box describes, and the
// view of such a part inside its tensor.
#pragma once

#include "plait/comm/transport.h"
#include "plait/plan/placement.h"

namespace plait {

// Where `inner` (a box of the same global tensor, inside `outer`) lies in the dense buffer of
// `outer`. Both may differ in one dimension only, so that it is one strided block.
Strided block_in(std::byte* outer_data, const Box& outer, const Box& inner, int64_t element_bytes);

void copy_from_global(std::byte* local, const Box& box, const std::byte* global,
                      const std::vector<int64_t>& dims, int64_t element_bytes);
void copy_to_global(const std::byte* local, const Box& box, std::byte* global,
                    const std::vector<int64_t>& dims, int64_t element_bytes);

}  // namespace plait
