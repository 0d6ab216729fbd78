// Rows of a table by id, and their gradient. The gradient sorts tokens by id, in the workspace, so
// that each row of the table is written once, by one thread, as the sum of its tokens in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/embedding.cc"
#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include "hwy/foreach_target.h"
#include "plait/kernels/cpu/kernels.h"
#include "plait/kernels/cpu/simd-inl.h"
#include "plait/ops/ops.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

inline void check_ids(std::string_view op, const TensorView& table, const TensorView& ids) {
  for (int64_t t = 0; t < ids.dims[0]; ++t)
    check_id(op, ids.as<int32_t>()[t], ids.begin[0] + t, table.global[0]);
}

void embedding(const KernelArgs& args) {
  const TensorView &table = args.in[0], &out = args.out[0];
  check_ids("embedding", table, args.in[1]);
  const int32_t* ids = args.in[1].as<int32_t>();
  const int64_t d = out.dims[1], begin = table.begin[0], rows = table.dims[0];
  by_storage(table, [&](auto* from) HWY_ATTR {
    by_storage(out, [&](auto* y) HWY_ATTR {
      for_rows(args.threads, out.dims[0], d, [=](int64_t t) HWY_ATTR {
        auto* to = y + t * d;
        const int64_t v = ids[t] - begin;
        if (v < 0 || v >= rows)
          walk(0, d, [=](auto io, int64_t j) HWY_ATTR { io.store(zero(), to + j); });
        else
          walk(0, d,
               [=](auto io, int64_t j) HWY_ATTR { io.store(io.load(from + v * d + j), to + j); });
      });
    });
  });
}

// Tokens whose id is a row of this shard, as row x 2^32 + token, sorted; how many?
inline int64_t sort_tokens(const TensorView& table, const TensorView& ids, int64_t* keys) {
  int64_t count = 0;
  for (int64_t t = 0; t < ids.dims[0]; ++t) {
    const int64_t v = ids.as<int32_t>()[t] - table.begin[0];
    if (v >= 0 && v < table.dims[0]) keys[count++] = v << 32 | t;
  }
  std::sort(keys, keys + count);
  return count;
}

// One row of the gradient from the tokens in [key, end), at least one.
template <class TY, class TD>
HWY_INLINE void sum_tokens(const int64_t* key, const int64_t* end, const TD* dy, int64_t d, TY* y) {
  walk(0, d, [=](auto io, int64_t j) HWY_ATTR {
    VF sum = zero();
    for (const int64_t* k = key; k != end; ++k)
      sum = hn::Add(sum, io.load(dy + (*k & 0xffffffff) * d + j));
    io.store(sum, y + j);
  });
}

void embedding_grad(const KernelArgs& args) {
  const TensorView& out = args.out[0];
  check_ids("embedding_grad", args.in[0], args.in[1]);
  int64_t* const keys = static_cast<int64_t*>(args.workspace);
  const int64_t* last = keys + sort_tokens(out, args.in[1], keys);
  const int64_t d = out.dims[1];
  const bool stream = streams(out);
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, d));
  by_storage(out, [&](auto* y) HWY_ATTR {
    by_storage(args.in[2], [&](auto* dy) HWY_ATTR {
      parallel_for(args.threads, out.dims[0], grain, [&](int64_t begin, int64_t end) HWY_ATTR {
        const int64_t* key = std::lower_bound<const int64_t*>(keys, last, begin << 32);
        for (int64_t v = begin; v < end;) {
          const int64_t next = key == last ? end : std::min(end, *key >> 32);
          walk(v * d, next * d, stream, y,
               [=](auto io, int64_t j) HWY_ATTR { io.store(zero(), y + j); });
          if (next == end) break;
          const int64_t* behind = key;
          while (behind != last && *behind >> 32 == next) ++behind;
          sum_tokens(key, behind, dy, d, y + next * d);
          key = behind;
          v = next + 1;
        }
        hwy::FlushStream();
      });
    });
  });
}

// Adds to the rows of the tokens, and touches no other.
void embedding_grad_accumulate(const KernelArgs& args) {
  const TensorView& out = args.out[0];
  check_ids("embedding_grad", args.in[1], args.in[2]);
  int64_t* const keys = static_cast<int64_t*>(args.workspace);
  const int64_t* last = keys + sort_tokens(out, args.in[2], keys);
  const int64_t d = out.dims[1];
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, d));
  float* sums = wide(out);
  if (out.data != args.in[0].data)
    std::memcpy(sums, wide(args.in[0]), static_cast<size_t>(out.elements()) * sizeof(float));
  by_storage(args.in[3], [&](auto* dy) HWY_ATTR {
    parallel_for(args.threads, out.dims[0], grain, [&](int64_t begin, int64_t end) HWY_ATTR {
      const int64_t* key = std::lower_bound<const int64_t*>(keys, last, begin << 32);
      for (; key != last && *key >> 32 < end; ++key) {
        float* row = sums + (*key >> 32) * d;
        const auto* from = dy + (*key & 0xffffffff) * d;
        walk(0, d, [=](auto io, int64_t j) HWY_ATTR {
          io.store(hn::Add(io.load(row + j), io.load(from + j)), row + j);
        });
      }
    });
  });
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {
PLAIT_KERNEL(embedding)
PLAIT_KERNEL(embedding_grad)
PLAIT_KERNEL(embedding_grad_accumulate)
}  // namespace plait
#endif
