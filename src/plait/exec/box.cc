#include "plait/exec/box.h"

#include <array>
#include <cstring>

#include "plait/model/model.h"

namespace plait {

Strided block_in(std::byte* outer_data, const Box& outer, const Box& inner, int64_t element_bytes) {
  size_t dim = 0;
  for (size_t d = 0; d < outer.size.size(); ++d)
    if (outer.size[d] != inner.size[d] || outer.begin[d] != inner.begin[d]) dim = d;
  int64_t rows = 1, run = element_bytes;
  for (size_t d = 0; d < outer.size.size(); ++d) {
    PLAIT_CHECK(d == dim || outer.size[d] == inner.size[d],
                "a block that differs in two dimensions");
    if (d < dim) rows *= outer.size[d];
    if (d > dim) run *= outer.size[d];
  }
  for (size_t d = 0; d < outer.size.size(); ++d)
    if (inner.begin[d] < outer.begin[d] ||
        inner.begin[d] + inner.size[d] > outer.begin[d] + outer.size[d])
      fail("a block of {} from {} lies beyond {} from {}", inner.size[d], inner.begin[d],
           outer.size[d], outer.begin[d]);
  if (outer.size.empty()) return {outer_data, 1, element_bytes, element_bytes};
  return {outer_data + (inner.begin[dim] - outer.begin[dim]) * run, rows, inner.size[dim] * run,
          outer.size[dim] * run};
}

namespace {

// Calls f(offset in the local tensor, offset in the global one, bytes) for every dense run.
template <class F>
void for_each_run(const Box& box, const std::vector<int64_t>& dims, int64_t element_bytes, F&& f) {
  if (box.elements() == 0) return;
  const size_t rank = dims.size();
  const int64_t run = rank == 0 ? element_bytes : box.size[rank - 1] * element_bytes;
  std::array<int64_t, kMaxDims> at{};  // inputs are copied in every step, which allocates nothing
  PLAIT_CHECK(rank <= at.size(), "a tensor of {} dimensions", rank);
  for (int64_t local = 0;; local += run) {
    int64_t global = 0;
    for (size_t d = 0; d < rank; ++d) global = global * dims[d] + box.begin[d] + at[d];
    f(local, global * element_bytes, run);
    size_t d = rank < 2 ? 0 : rank - 1;
    for (; d > 0; --d) {
      if (++at[d - 1] < box.size[d - 1]) break;
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

}  // namespace

void copy_from_global(std::byte* local, const Box& box, const std::byte* global,
                      const std::vector<int64_t>& dims, int64_t element_bytes) {
  for_each_run(box, dims, element_bytes, [&](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(local + to, global + from, static_cast<size_t>(bytes));
  });
}

void copy_to_global(const std::byte* local, const Box& box, std::byte* global,
                    const std::vector<int64_t>& dims, int64_t element_bytes) {
  for_each_run(box, dims, element_bytes, [&](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(global + to, local + from, static_cast<size_t>(bytes));
  });
}

}  // namespace plait
