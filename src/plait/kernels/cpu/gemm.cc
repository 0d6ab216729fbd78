// Blocks after Goto and van de Geijn (2008): a block of B is packed into panels that stay in the
// second and third cache; strips of A pass over one panel after the other, which stays in the
// first. Threads divide C into a grid and share nothing: each packs what it needs, so there is
// nothing to wait for.
#include "plait/kernels/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#include "plait/base/half.h"
#include "plait/kernels/cpu/micro_bf16.h"
#include "plait/kernels/cpu/targets.h"
#include "plait/kernels/cpu/team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/gemm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "plait/kernels/cpu/micro-inl.h"

#ifndef PLAIT_KERNELS_CPU_GEMM_JOB_
#define PLAIT_KERNELS_CPU_GEMM_JOB_
namespace plait {
namespace {

struct Job {
  int64_t m, n, k;
  float alpha;
  Matrix a, b;
  void* c;
  Dtype c_dtype;
  int64_t ldc;
  Epilogue epilogue;
  std::byte* scratch;  // aligned to 64 bytes
};

// Elements of a matrix by address.
const std::byte* at(const void* data, Dtype dtype, int64_t index) {
  return static_cast<const std::byte*>(data) + index * (dtype == Dtype::bf16 ? 2 : 4);
}
std::byte* at(void* data, Dtype dtype, int64_t index) {
  return static_cast<std::byte*>(data) + index * (dtype == Dtype::bf16 ? 2 : 4);
}

const std::byte* element_of(const Matrix& x, int64_t i, int64_t j) {
  return at(x.data, x.dtype, x.transposed ? j * x.ld + i : i * x.ld + j);
}

// `size` in as few equal parts as `most` allows; the size of a part, in whole grains.
int64_t equal_parts(int64_t size, int64_t most, int64_t grain) {
  const int64_t parts = std::max<int64_t>(1, (size + most - 1) / most);
  return std::min(most, GemmBlocks::up((size + parts - 1) / parts, grain));
}

}  // namespace
}  // namespace plait
#endif

HWY_BEFORE_NAMESPACE();
namespace plait {
namespace HWY_NAMESPACE {
namespace {

// How a tile of C is made; Part is made for one of these.
//   T                    of packed operands: rows x depth elements of A, depth x columns of B
//   kRows, kColumns      of a tile
//   kDepth, kHeight      summands and rows of A that are packed at a time, at most
//   kGrain, whole        depths are cut at multiples of kGrain, and packed up to a whole one
//   kAddsLast            `add` adds to a finished sum; else c is where the sum begins
//   in_place             rows of A of this many that are read as they lie; the others are packed
// in f32, from operands of either type:
struct Wide {
  using T = float;
  using Strip = HWY_NAMESPACE::Strip;
  static constexpr int64_t kRows = HWY_NAMESPACE::kRows, kColumns = HWY_NAMESPACE::kColumns;
  static constexpr int64_t kDepth = GemmBlocks::kDepth, kHeight = GemmBlocks::kHeight;
  static constexpr int64_t kGrain = 4;
  static constexpr bool kAddsLast = true;
  static constexpr int64_t whole(int64_t depth) { return depth; }

  // For a few panels it does not pay to pack what can be read as it lies.
  static int64_t in_place(const Matrix& a, int64_t rows, int64_t /*depth*/, int64_t columns) {
    return a.transposed || a.dtype != Dtype::f32 || columns > 2 * kColumns ? 0 : rows;
  }
  static Strip strip(const Matrix& a, int64_t i, int64_t l) {
    return Strip::rows(static_cast<const float*>(a.data) + i * a.ld + l, a.ld);
  }
  static void pack_b(int64_t depth, int64_t columns, const Matrix& b, int64_t l, int64_t j,
                     float alpha, T* to) {
    typed(b, l, j, [&](const auto* p) {
      if (b.transposed)
        pack_b_transposed(depth, columns, p, b.ld, alpha, to);
      else
        HWY_NAMESPACE::pack_b(depth, columns, p, b.ld, alpha, to);
    });
  }
  static void pack_a(int64_t rows, int64_t depth, const Matrix& a, int64_t i, int64_t l, T* to) {
    typed(a, i, l, [&](const auto* p) {
      if (a.transposed)
        pack_a_transposed(rows, depth, p, a.ld, to);
      else
        HWY_NAMESPACE::pack_a(rows, depth, p, a.ld, to);
    });
  }
  void multiply(int64_t rows, int64_t columns, int64_t depth, const Strip& a, const T* panel,
                float* c, int64_t ldc, bool add) const {
    micro_border(rows, columns, depth, a, panel, c, ldc, add);
  }

 private:
  template <class F>
  static void typed(const Matrix& x, int64_t i, int64_t j, const F& f) {
    const std::byte* from = element_of(x, i, j);
    if (x.dtype == Dtype::f32)
      f(reinterpret_cast<const float*>(from));
    else
      f(reinterpret_cast<const uint16_t*>(from));
  }
};

#if HWY_TARGET == HWY_AVX3
#define PLAIT_HAVE_PAIRS 1
// by instructions that multiply pairs of bf16:
struct Pairs {
  using T = uint16_t;
  using Strip = bf16_micro::Strip;
  static constexpr int64_t kRows = bf16_micro::kRows, kColumns = bf16_micro::kColumns;
  static constexpr int64_t kDepth = 2 * GemmBlocks::kDepth, kHeight = GemmBlocks::kHeight;
  static constexpr int64_t kGrain = bf16_micro::kStep;
  static constexpr bool kAddsLast = false;
  static constexpr int64_t whole(int64_t depth) { return bf16_micro::whole(depth); }

  static bool fits(const Job& job) {
    return job.a.dtype == Dtype::bf16 && job.b.dtype == Dtype::bf16 && job.alpha == 1 &&
           bf16_unit() != Bf16Unit::none;
  }
  static int64_t in_place(const Matrix& a, int64_t rows, int64_t depth, int64_t /*columns*/) {
    return a.transposed || depth % bf16_micro::kStep != 0 ? 0 : rows / kRows * kRows;
  }
  static Strip strip(const Matrix& a, int64_t i, int64_t l) {
    return Strip::rows(bits(a, i, l), a.ld);
  }
  static void pack_b(int64_t depth, int64_t columns, const Matrix& b, int64_t l, int64_t j,
                     float /*alpha*/, T* to) {
    if (b.transposed)
      bf16_micro::pack_b_transposed(depth, columns, bits(b, l, j), b.ld, to);
    else
      bf16_micro::pack_b(depth, columns, bits(b, l, j), b.ld, to);
  }
  static void pack_a(int64_t rows, int64_t depth, const Matrix& a, int64_t i, int64_t l, T* to) {
    if (a.transposed)
      bf16_micro::pack_a_transposed(rows, depth, bits(a, i, l), a.ld, to);
    else
      bf16_micro::pack_a(rows, depth, bits(a, i, l), a.ld, to);
  }
  void multiply(int64_t rows, int64_t columns, int64_t depth, const Strip& a, const T* panel,
                float* c, int64_t ldc, bool add) const {
    session.multiply(rows, columns, depth, a, panel, c, ldc, add);
  }

  bf16_micro::Session session;

 private:
  static const uint16_t* bits(const Matrix& x, int64_t i, int64_t j) {
    return reinterpret_cast<const uint16_t*>(element_of(x, i, j));
  }
};
#else
#define PLAIT_HAVE_PAIRS 0
#endif

// One thread's part of C.
template <class Kind>
class Part {
 public:
  using T = typename Kind::T;
  static constexpr int64_t kRows = Kind::kRows, kColumns = Kind::kColumns;

  Part(const Job& job, int64_t m0, int64_t m1, int64_t n0, int64_t n1, std::byte* scratch)
      : job_(job), m0_(m0), m1_(m1), n0_(n0), n1_(n1), blocks_(job.m, job.n, job.k, job.c_dtype) {
    auto* floats = reinterpret_cast<float*>(scratch);
    b_ = reinterpret_cast<T*>(floats);
    a_ = reinterpret_cast<T*>(floats + blocks_.b_floats());
    sums_ = floats + blocks_.b_floats() + blocks_.a_floats();
    depth_ = equal_parts(job.k, Kind::kDepth, Kind::kGrain);
  }

  void run() {
    const int64_t width = equal_parts(n1_ - n0_, blocks_.width, kColumns);
    const int64_t rows = m1_ - m0_;
    const int64_t tall =
        blocks_.sums == 0 ? std::max<int64_t>(rows, 1) : equal_parts(rows, blocks_.sums, kRows);
    for (int64_t j = n0_; j < n1_; j += width)
      for (int64_t i = m0_; i < m1_; i += tall)
        block(i, std::min(tall, m1_ - i), j, std::min(width, n1_ - j));
  }

 private:
  // Rows [i0, i0 + rows) and columns [j0, j0 + columns) of C, over all of k.
  void block(int64_t i0, int64_t rows, int64_t j0, int64_t columns) {
    const int64_t height = equal_parts(rows, Kind::kHeight, kRows);
    int64_t l = 0;
    do {
      const int64_t depth = std::min(depth_, job_.k - l);
      first_ = l == 0;
      last_ = l + depth >= job_.k;
      Kind::pack_b(depth, columns, job_.b, l, j0, job_.alpha, b_);
      for (int64_t i = 0; i < rows; i += height)
        stripe(i0 + i, std::min(height, rows - i), i, j0, columns, l, depth);
      l += depth;
    } while (l < job_.k);
  }

  // Rows [i, i + rows), at `sums_row` in the sums, over the packed block of B.
  void stripe(int64_t i, int64_t rows, int64_t sums_row, int64_t j0, int64_t columns, int64_t l,
              int64_t depth) {
    const int64_t whole = Kind::whole(depth);
    const int64_t in_place = Kind::in_place(job_.a, rows, depth, n1_ - n0_);
    if (in_place < rows) Kind::pack_a(rows - in_place, depth, job_.a, i + in_place, l, a_);
    for (int64_t j = 0; j < columns; j += kColumns)
      for (int64_t r = 0; r < rows; r += kRows) {
        const auto strip = r < in_place ? Kind::strip(job_.a, i + r, l)
                                        : Kind::Strip::packed(a_ + (r - in_place) * whole);
        float* sums = sums_ + (sums_row + r) * blocks_.width + j;
        finish(i + r, j0 + j, std::min(kRows, rows - r), std::min(kColumns, columns - j), whole,
               strip, b_ + j * whole, sums);
      }
  }

  // The tile of C at (i, j): multiplied, added to what there was, and if it is done, given its
  // epilogue.
  void finish(int64_t i, int64_t j, int64_t rows, int64_t columns, int64_t depth,
              const typename Kind::Strip& strip, const T* panel, float* sums) {
    const Epilogue& e = job_.epilogue;
    if (job_.c_dtype == Dtype::f32) {
      float* c = static_cast<float*>(job_.c) + i * job_.ldc + j;
      const bool plain = e.bias == nullptr && e.addend == nullptr;
      const bool onto_itself =
          Kind::kAddsLast && e.bias == nullptr && e.addend == job_.c && e.addend_ld == job_.ldc;
      if (!first_ || plain || onto_itself)
        return kind_.multiply(rows, columns, depth, strip, panel, c, job_.ldc,
                              !first_ || onto_itself);
    } else if (!last_ || !first_) {
      kind_.multiply(rows, kColumns, depth, strip, panel, sums, blocks_.width, !first_);
      if (last_) add_and_store(i, j, rows, columns, sums, blocks_.width);
      return;
    }
    alignas(64) float tile[kRows * kColumns];
    kind_.multiply(rows, kColumns, depth, strip, panel, tile, kColumns, false);
    add_and_store(i, j, rows, columns, tile, kColumns);
  }

  // C = sums + bias + addend at (i, j).
  void add_and_store(int64_t i, int64_t j, int64_t rows, int64_t columns, const float* sums,
                     int64_t ld) const {
    for (int64_t r = 0; r < rows; ++r, sums += ld) {
      int64_t q = 0;
      for (; q + micro_internal::kLanes <= columns; q += micro_internal::kLanes)
        row(i + r, j + q, sums + q);
      for (; q < columns; ++q) element(i + r, j + q, sums[q]);
    }
  }

  // One vector of a row.
  void row(int64_t i, int64_t j, const float* sums) const {
    using namespace micro_internal;
    const Epilogue& e = job_.epilogue;
    V value = hn::LoadU(F(), sums);
    if (e.bias != nullptr) value = hn::Add(value, hn::LoadU(F(), e.bias + j));
    if (e.addend != nullptr) {
      const std::byte* from = at(e.addend, e.addend_dtype, i * e.addend_ld + j);
      value = hn::Add(value, e.addend_dtype == Dtype::f32
                                 ? load(F(), reinterpret_cast<const float*>(from))
                                 : load(F(), reinterpret_cast<const uint16_t*>(from)));
    }
    std::byte* to = at(job_.c, job_.c_dtype, i * job_.ldc + j);
    if (job_.c_dtype == Dtype::f32)
      hn::StoreU(value, F(), reinterpret_cast<float*>(to));
    else
      store_bf16(value, reinterpret_cast<uint16_t*>(to));
  }

  void element(int64_t i, int64_t j, float value) const {
    const Epilogue& e = job_.epilogue;
    if (e.bias != nullptr) value += e.bias[j];
    if (e.addend != nullptr) {
      const std::byte* from = at(e.addend, e.addend_dtype, i * e.addend_ld + j);
      value += e.addend_dtype == Dtype::f32 ? *reinterpret_cast<const float*>(from)
                                            : bf16_value(*reinterpret_cast<const uint16_t*>(from));
    }
    std::byte* to = at(job_.c, job_.c_dtype, i * job_.ldc + j);
    if (job_.c_dtype == Dtype::f32)
      *reinterpret_cast<float*>(to) = value;
    else
      *reinterpret_cast<uint16_t*>(to) = bf16_bits(value);
  }

  const Job& job_;
  int64_t m0_, m1_, n0_, n1_;
  GemmBlocks blocks_;
  Kind kind_{};
  T *a_, *b_;
  float* sums_;
  int64_t depth_;
  bool first_ = false, last_ = false;
};

struct Grid {
  int rows, columns;
};

// The division of C that takes a thread least: its multiply-adds, and what it has to pack.
template <class Kind>
Grid grid_of(const Job& job, int threads) {
  constexpr double kPack = 32;  // multiply-adds in the time of packing one element
  Grid best{1, 1};
  double least = -1;
  for (int rows = 1; rows <= threads; ++rows) {
    const int columns = threads / rows;
    const auto m = static_cast<double>(GemmBlocks::up((job.m + rows - 1) / rows, Kind::kRows));
    const auto n =
        static_cast<double>(GemmBlocks::up((job.n + columns - 1) / columns, Kind::kColumns));
    const double cost = m * n + kPack * (m + n);
    if (least < 0 || cost < least) {
      least = cost;
      best = {rows, columns};
    }
  }
  return best;
}

template <class Kind>
void part_by(const Job& job, int thread, int threads) {
  const Grid grid = grid_of<Kind>(job, threads);
  if (thread >= grid.rows * grid.columns) return;
  const auto rows = part_of_team(job.m, Kind::kRows, thread / grid.columns, grid.rows);
  const auto columns = part_of_team(job.n, Kind::kColumns, thread % grid.columns, grid.columns);
  const int64_t bytes = GemmBlocks(job.m, job.n, job.k, job.c_dtype).bytes();
  Part<Kind>(job, rows.begin, rows.end, columns.begin, columns.end, job.scratch + thread * bytes)
      .run();
}

void gemm_part(const Job& job, int thread, int threads) {
#if PLAIT_HAVE_PAIRS
  if (Pairs::fits(job)) return part_by<Pairs>(job, thread, threads);
#endif
  part_by<Wide>(job, thread, threads);
}
#undef PLAIT_HAVE_PAIRS

// FLOP of `rounds` of ten chains of multiply-adds: enough to hide the latency of each.
double multiply_adds(int64_t rounds) {
  using namespace micro_internal;
  const F f;
  // Known at run time only, each start anew: chains that began alike would be made one.
  volatile float one = 1, small = 0;
  const auto start = [&] { return hn::Set(f, small); };
  const V x = hn::Set(f, one), y = start();
  V a = start(), b = start(), c = start(), d = start(), e = start();
  V g = start(), h = start(), i = start(), j = start(), k = start();
  for (int64_t round = 0; round < rounds; ++round) {
    a = hn::MulAdd(a, x, y);
    b = hn::MulAdd(b, x, y);
    c = hn::MulAdd(c, x, y);
    d = hn::MulAdd(d, x, y);
    e = hn::MulAdd(e, x, y);
    g = hn::MulAdd(g, x, y);
    h = hn::MulAdd(h, x, y);
    i = hn::MulAdd(i, x, y);
    j = hn::MulAdd(j, x, y);
    k = hn::MulAdd(k, x, y);
  }
  a = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, d)), hn::Add(hn::Add(e, g), hn::Add(h, i)));
  alignas(64) float sum[kLanes];
  hn::Store(hn::Add(a, hn::Add(j, k)), f, sum);
  small = sum[0];
  return static_cast<double>(rounds * 10 * 2 * kLanes);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plait
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {

HWY_EXPORT(gemm_part);
HWY_EXPORT(multiply_adds);

namespace {

void check(const char* what, Dtype dtype) {
  if (dtype != Dtype::f32 && dtype != Dtype::bf16)
    fail("gemm: {} is {}; expected f32 or bf16", what, info(dtype).name);
}

// A team costs about as much as this many multiply-adds for each of its threads.
constexpr int64_t kWorth = 1 << 16;

}  // namespace

void gemm(int64_t m, int64_t n, int64_t k, float alpha, const Matrix& a, const Matrix& b, void* c,
          Dtype c_dtype, int64_t ldc, const Epilogue& epilogue, void* scratch, int threads) {
  if (m == 0 || n == 0) return;
  check("A", a.dtype);
  check("B", b.dtype);
  check("C", c_dtype);
  if (epilogue.addend != nullptr) check("the addend", epilogue.addend_dtype);
  auto aligned = (reinterpret_cast<uintptr_t>(scratch) + 63) / 64 * 64;
  const Job job{
      m, n, k, alpha, a, b, c, c_dtype, ldc, epilogue, reinterpret_cast<std::byte*>(aligned)};
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto worth = static_cast<int>(std::min(work / kWorth + 1, 1024.0));
  on_team(std::min(threads, worth), [&](int thread, int count) {
    HWY_DYNAMIC_DISPATCH(gemm_part)(job, thread, count);
  });
}

double multiply_adds(int64_t rounds) { return HWY_DYNAMIC_DISPATCH(multiply_adds)(rounds); }

}  // namespace plait
#endif
