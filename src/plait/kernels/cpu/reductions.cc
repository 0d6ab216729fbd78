// Sums over whole tensors, rows or columns. Every sum is cut at borders that depend on the shape
// alone, so that no bit depends on the number of threads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/reductions.cc"
#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include <array>

#include "hwy/foreach_target.h"
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/simd-inl.h"
#include "plait/ops/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

// A f32 sum of more elements than these, 64 to each of its partial sums, is continued in double.
constexpr int64_t kRun = 64 * 4 * kLanes;
// A sum over a whole tensor is cut into at most so many blocks.
constexpr int64_t kBlocks = 256;

// The sum over [begin, end) of what op(io, i, sum) adds, in runs.
template <class Op>
HWY_INLINE double long_total(int64_t begin, int64_t end, Op op) {
  double sum = 0;
  for (int64_t run = begin; run < end; run += kRun)
    sum += static_cast<double>(total(std::min(kRun, end - run),
                                     [=](auto io, int64_t i, VF s)
                                         HWY_ATTR { return op(io, run + i, s); }));
  return sum;
}

// The same over n elements, by the team.
template <class Op>
HWY_INLINE float team_total(int threads, int64_t n, Op op) {
  const int64_t runs = (n + kRun - 1) / kRun;
  const int64_t block = std::max(kGrain / kRun, (runs + kBlocks - 1) / kBlocks) * kRun;
  const int64_t count = (n + block - 1) / block;
  std::array<double, kBlocks> sums;
  parallel_for(threads, count, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t b = begin; b < end; ++b)
      sums[static_cast<size_t>(b)] = long_total(b * block, std::min(n, (b + 1) * block), op);
  });
  double sum = 0;
  for (int64_t b = 0; b < count; ++b) sum += sums[static_cast<size_t>(b)];
  return static_cast<float>(sum);
}

void dot(const KernelArgs& args) {
  same_storage({&args.in[0], &args.in[1]});
  by_storage(args.in[0], [&](auto* a) HWY_ATTR {
    const auto* b = args.in[1].as<std::remove_pointer_t<decltype(a)>>();
    *wide(args.out[0]) =
        team_total(args.threads, args.in[0].elements(), [=](auto io, int64_t i, VF s) HWY_ATTR {
          return hn::MulAdd(io.load(a + i), io.load(b + i), s);
        });
  });
}

void sum_squares(const KernelArgs& args) {
  by_storage(args.in[0], [&](auto* x) HWY_ATTR {
    *wide(args.out[0]) =
        team_total(args.threads, args.in[0].elements(), [=](auto io, int64_t i, VF s) HWY_ATTR {
          const VF v = io.load(x + i);
          return hn::MulAdd(v, v, s);
        });
  });
}

struct Itself {
  HWY_INLINE VF operator()(VF v) const { return v; }
};
struct Square {
  HWY_INLINE VF operator()(VF v) const { return hn::Mul(v, v); }
};

// y [width] = the sum over rows of f(x), x [rows, width]. Work is divided into tiles: a block of
// rows and so many columns.
constexpr int64_t kColumns = 2048;

template <class T, class F>
HWY_INLINE void sum_columns(const KernelArgs& args, const T* x, int64_t rows, int64_t width,
                            float* y, F f) {
  const RowBlocks blocks = row_blocks(rows);
  const int64_t chunks = (width + kColumns - 1) / kColumns;
  float* sums = blocks.count <= 1 ? y : static_cast<float*>(args.workspace);
  if (blocks.count == 0) std::memset(y, 0, static_cast<size_t>(width) * sizeof(float));
  const int64_t tile = blocks.rows * std::min(width, kColumns);
  for_rows(args.threads, blocks.count * chunks, tile, [=](int64_t i) HWY_ATTR {
    const int64_t block = i / chunks, begin = i % chunks * kColumns;
    const int64_t columns = std::min(kColumns, width - begin);
    const int64_t first = block * blocks.rows, end = std::min(rows, first + blocks.rows);
    float* sum = sums + block * width + begin;
    const T* from = x + begin;
    walk(0, columns, [=](auto io, int64_t j) HWY_ATTR { io.store(zero(), sum + j); });
    int64_t row = first;
    for (; row + 4 <= end; row += 4) {
      const T *a = from + row * width, *b = a + width, *c = b + width, *e = c + width;
      walk(0, columns, [=](auto io, int64_t j) HWY_ATTR {
        const VF ab = hn::Add(f(io.load(a + j)), f(io.load(b + j)));
        const VF ce = hn::Add(f(io.load(c + j)), f(io.load(e + j)));
        io.store(hn::Add(io.load(sum + j), hn::Add(ab, ce)), sum + j);
      });
    }
    for (; row < end; ++row) {
      const T* a = from + row * width;
      walk(0, columns, [=](auto io, int64_t j) HWY_ATTR {
        io.store(hn::Add(io.load(sum + j), f(io.load(a + j))), sum + j);
      });
    }
  });
  if (blocks.count <= 1) return;
  sweep(args.threads, width, [=](auto io, int64_t j) HWY_ATTR {
    VF sum = io.load(sums + j);
    for (int64_t b = 1; b < blocks.count; ++b) sum = hn::Add(sum, io.load(sums + b * width + j));
    io.store(sum, y + j);
  });
}

void sum_rows(const KernelArgs& args) {
  const TensorView& in = args.in[0];
  by_storage(in, [&](auto* x) HWY_ATTR {
    sum_columns(args, x, in.dims[0], in.dims[1], wide(args.out[0]), Itself());
  });
}

// x [before, size, behind] -> y [before, behind]
template <class T, class F>
HWY_INLINE void sum_middle(const KernelArgs& args, const T* x, int64_t before, int64_t size,
                           int64_t behind, F f) {
  float* y = wide(args.out[0]);
  const auto sum_of = [=](auto io, int64_t i, VF s)
                          HWY_ATTR { return hn::Add(s, f(io.load(x + i))); };
  if (behind == 1 && before == 1) {
    *y = team_total(args.threads, size, sum_of);
  } else if (behind == 1) {
    for_rows(args.threads, before, size, [=](int64_t i) HWY_ATTR {
      y[i] = static_cast<float>(long_total(i * size, (i + 1) * size, sum_of));
    });
  } else {
    for (int64_t i = 0; i < before; ++i)
      sum_columns(args, x + i * size * behind, size, behind, y + i * behind, f);
  }
}

void sum_along(const KernelArgs& args) {
  const TensorView& in = args.in[0];
  const auto dim = static_cast<int>(attr(*args.attrs, "dim"));
  int64_t before = 1, behind = 1;
  for (int d = 0; d < in.rank; ++d)
    if (d != dim) (d < dim ? before : behind) *= in.dims[static_cast<size_t>(d)];
  const int64_t size = in.dims[static_cast<size_t>(dim)];
  by_storage(in, [&](auto* x) HWY_ATTR {
    if (attr(*args.attrs, "power") == 2)
      sum_middle(args, x, before, size, behind, Square());
    else
      sum_middle(args, x, before, size, behind, Itself());
  });
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {
PLAIT_KERNEL(dot)
PLAIT_KERNEL(sum_squares)
PLAIT_KERNEL(sum_rows)
PLAIT_KERNEL(sum_along)
}  // namespace plait
#endif
