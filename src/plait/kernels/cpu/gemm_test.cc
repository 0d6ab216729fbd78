#include "plait/kernels/cpu/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "plait/base/half.h"
#include "plait/base/rng.h"
#include "plait/ir/op.h"
#include "plait/kernels/cpu/micro_bf16.h"
#include "plait/kernels/cpu/targets.h"
#include "plait/kernels/cpu/team.h"
//
#include "hwy/highway.h"

namespace plait {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
constexpr double kEpsilon = 0x1p-24;

// Runs `f` once for every instruction set that was compiled and that this machine has, and with
// AVX-512 for each of its units for bf16 and without them.
template <class F>
void on_every_target(F f) {
  hwy::SetSupportedTargetsForTest(0);
  int64_t rest = hwy::SupportedTargets() & HWY_TARGETS;
  ASSERT_NE(rest, 0);
  for (int64_t target = 0; rest != 0; rest ^= target) {
    target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    const Bf16Unit best = bf16_unit();
    for (const Bf16Unit unit : {Bf16Unit::none, Bf16Unit::avx512, Bf16Unit::amx}) {
      if (unit != Bf16Unit::none && target != HWY_AVX3) break;
      if (!use_bf16_unit(unit)) continue;
      SCOPED_TRACE(name(unit));
      f();
      if (testing::Test::HasFatalFailure()) break;
    }
    use_bf16_unit(best);
    if (testing::Test::HasFatalFailure()) break;
  }
  hwy::SetSupportedTargetsForTest(0);
}

// A matrix in f32 or bf16, rows `ld` apart, with guard elements all around.
struct Stored {
  static constexpr int64_t kGuard = 40;
  Dtype dtype;
  int64_t rows, columns, ld;
  std::vector<float> f32;
  std::vector<uint16_t> bf16;

  Stored(Dtype type, int64_t r, int64_t c, int64_t extra)
      : dtype(type), rows(r), columns(c), ld(c + extra) {
    const auto size = static_cast<size_t>(rows * ld + 2 * kGuard);
    f32.assign(dtype == Dtype::f32 ? size : 0, kPoison);
    bf16.assign(dtype == Dtype::bf16 ? size : 0, bf16_bits(kPoison));
  }
  size_t index(int64_t i, int64_t j) const { return static_cast<size_t>(kGuard + i * ld + j); }
  double get(int64_t i, int64_t j) const {
    return dtype == Dtype::f32 ? static_cast<double>(f32[index(i, j)])
                               : bf16_value_f64(bf16[index(i, j)]);
  }
  void set(int64_t i, int64_t j, float value) {
    if (dtype == Dtype::f32)
      f32[index(i, j)] = value;
    else
      bf16[index(i, j)] = bf16_bits(value);
  }
  void draw(uint64_t seed) {
    uint64_t next = seed << 32;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        set(i, j, static_cast<float>(2 * uniform(1, Stream::test, next++) - 1));
  }
  void* data() {
    return dtype == Dtype::f32 ? static_cast<void*>(f32.data() + kGuard)
                               : static_cast<void*>(bf16.data() + kGuard);
  }
  // Everything but the elements themselves is still poison.
  bool untouched_around() const {
    const auto size = static_cast<int64_t>(f32.size() + bf16.size());
    for (int64_t at = 0; at < size; ++at) {
      const int64_t inside = at - kGuard;
      if (inside >= 0 && inside < rows * ld && inside % ld < columns) continue;
      const auto i = static_cast<size_t>(at);
      if (dtype == Dtype::f32 ? !std::isnan(f32[i]) : bf16[i] != bf16_bits(kPoison)) return false;
    }
    return true;
  }
};

struct Case {
  int64_t m, n, k;
  bool ta = false, tb = false;
  Dtype in = Dtype::f32, out = Dtype::f32;
  float alpha = 1;
  bool bias = false;
  enum class Addend : uint8_t { none, f32, bf16, itself } addend = Addend::none;
  int64_t extra = 0;  // elements between rows

  std::string text() const {
    return fmt::format(
        "m {} n {} k {} ta {} tb {} in {} out {} alpha {} bias {} addend {} extra {}", m, n, k, ta,
        tb, info(in).name, info(out).name, alpha, bias, static_cast<int>(addend), extra);
  }
};

// Operands of a case, and C as it is before the product.
struct Operands {
  Stored a, b, c, addend;
  std::vector<float> bias;
  explicit Operands(const Case& t)
      : a(t.in, t.ta ? t.k : t.m, t.ta ? t.m : t.k, t.extra),
        b(t.in, t.tb ? t.n : t.k, t.tb ? t.k : t.n, 2 * t.extra),
        c(t.out, t.m, t.n, t.extra),
        addend(t.addend == Case::Addend::bf16 ? Dtype::bf16 : Dtype::f32, t.m, t.n, 3 * t.extra) {
    a.draw(1);
    b.draw(2);
    addend.draw(3);
    if (t.addend == Case::Addend::itself) c.draw(4);
    for (int64_t j = 0; j < t.n; ++j) bias.push_back(static_cast<float>(j % 7) - 3);
  }
};

void multiply(const Case& t, Operands& o, int threads) {
  Epilogue e;
  if (t.bias) e.bias = o.bias.data();
  if (t.addend == Case::Addend::itself) {
    e = {e.bias, o.c.data(), o.c.dtype, o.c.ld};
  } else if (t.addend != Case::Addend::none) {
    e = {e.bias, o.addend.data(), o.addend.dtype, o.addend.ld};
  }
  const auto bytes = static_cast<size_t>(gemm_scratch_bytes(t.m, t.n, t.k, threads, t.out));
  constexpr size_t kGuard = 64;
  std::vector<std::byte> scratch(bytes + kGuard, std::byte{0xff});  // 0xff...: NaN
  start_team({threads, -1});
  gemm(t.m, t.n, t.k, t.alpha, {o.a.data(), t.in, o.a.ld, t.ta}, {o.b.data(), t.in, o.b.ld, t.tb},
       o.c.data(), t.out, o.c.ld, e, scratch.data(), threads);
  for (size_t i = bytes; i < bytes + kGuard; ++i)
    ASSERT_EQ(scratch[i], std::byte{0xff}) << "scratch is written beyond its end";
}

// |C - sum| <= eps (a little for every block of k) sum |terms|, and half a unit of bf16.
void hold(const Case& t, Operands& o, const Stored& before) {
  ASSERT_TRUE(o.c.untouched_around());
  for (int64_t i = 0; i < t.m; ++i)
    for (int64_t j = 0; j < t.n; ++j) {
      double sum = 0, size = 0;
      auto add = [&](double term) {
        sum += term;
        size += std::fabs(term);
      };
      for (int64_t l = 0; l < t.k; ++l)
        add(static_cast<double>(t.alpha) * (t.ta ? o.a.get(l, i) : o.a.get(i, l)) *
            (t.tb ? o.b.get(j, l) : o.b.get(l, j)));
      if (t.bias) add(static_cast<double>(o.bias[static_cast<size_t>(j)]));
      if (t.addend == Case::Addend::itself)
        add(before.get(i, j));
      else if (t.addend != Case::Addend::none)
        add(o.addend.get(i, j));
      double bound = kEpsilon * size * std::sqrt(static_cast<double>(t.k) + 4);
      if (t.out == Dtype::bf16) bound = bound * 1.01 + std::fabs(sum) * 0x1p-8;
      ASSERT_LE(std::fabs(o.c.get(i, j) - sum), bound)
          << "at " << i << ", " << j << ": " << o.c.get(i, j) << " for " << sum;
    }
}

void run(const Case& t) {
  SCOPED_TRACE(t.text());
  Operands o(t);
  const Stored before = o.c;
  multiply(t, o, 1);
  hold(t, o, before);
}

constexpr int64_t kAwkward[] = {0, 1, 2, 5, 6, 7, 11, 13, 15, 16, 17, 33};

TEST(Gemm, EveryLayoutAtAwkwardSizes) {
  on_every_target([] {
    int turn = 0;  // other features take turns, so that each meets each size
    for (const int64_t m : kAwkward)
      for (const int64_t n : kAwkward)
        for (const int64_t k : {0, 1, 3, 4, 9}) {
          Case t{m, n, k};
          t.ta = turn % 2 == 1;
          t.tb = turn / 2 % 2 == 1;
          t.extra = turn % 5;
          t.alpha = turn % 3 == 0 ? 0.5f : 1;
          t.in = turn % 7 < 3 ? Dtype::bf16 : Dtype::f32;
          t.out = turn % 11 < 4 ? Dtype::bf16 : Dtype::f32;
          t.bias = turn % 13 < 5;
          t.addend = static_cast<Case::Addend>(turn % 4);
          ASSERT_NO_FATAL_FAILURE(run(t));
          ++turn;
        }
  });
}

TEST(Gemm, AroundTheBordersOfBlocks) {
  constexpr int64_t d = GemmBlocks::kDepth, h = GemmBlocks::kHeight, w = GemmBlocks::kWidth;
  on_every_target([] {
    for (const Dtype out : {Dtype::f32, Dtype::bf16})
      for (const bool transposed : {false, true}) {
        Case t{1, 1, 1, transposed, !transposed};
        t.in = t.out = out;
        auto with = [&](int64_t m, int64_t n, int64_t k) {
          t.m = m;
          t.n = n;
          t.k = k;
          t.addend = static_cast<Case::Addend>((m + n + k) % 4);
          t.bias = k % 2 == 0;
          ASSERT_NO_FATAL_FAILURE(run(t));
        };
        for (const int64_t k : {d - 1, d, d + 1, 2 * d + 1, 3 * d - 2}) with(7, 35, k);
        for (const int64_t m : {h - 1, h, h + 1, 2 * h + 5}) with(m, 3, 5);
        for (const int64_t n : {w - 1, w, w + 1, 2 * w + 33}) with(3, n, 5);
        with(GemmBlocks::kSums + 1, 33, d + 1);
        with(h + 1, 33, d + 3);
        with(5, w + 1, d + 1);
      }
  });
}

// Rows that are read as they lie beside a packed rest, and sums over several blocks, of
// instructions for bf16, whose blocks are twice as deep.
TEST(Gemm, AroundTheBordersOfPairs) {
  constexpr int64_t d = 2 * GemmBlocks::kDepth;
  on_every_target([] {
    for (const Dtype out : {Dtype::f32, Dtype::bf16})
      for (const bool transposed : {false, true})
        for (const auto& [m, n, k] :
             std::vector<std::array<int64_t, 3>>{{GemmBlocks::kSums + 1, 17, 2 * d + 1},
                                                 {45, 70, 64},
                                                 {130, 70, d + 32},
                                                 {5, 40, d - 1}}) {
          Case t{m, n, k, transposed, !transposed, Dtype::bf16, out};
          t.addend = static_cast<Case::Addend>((m + k) % 4);
          ASSERT_NO_FATAL_FAILURE(run(t));
          t.ta = t.tb = false;
          ASSERT_NO_FATAL_FAILURE(run(t));
        }
  });
}

TEST(Gemm, EveryLayoutWithEveryType) {
  on_every_target([] {
    for (int bits = 0; bits < 16; ++bits) {
      Case t{29, 53, 300, (bits & 1) != 0, (bits & 2) != 0};
      t.in = (bits & 4) != 0 ? Dtype::bf16 : Dtype::f32;
      t.out = (bits & 8) != 0 ? Dtype::bf16 : Dtype::f32;
      for (int addend = 0; addend < 4; ++addend) {
        t.addend = static_cast<Case::Addend>(addend);
        t.bias = addend % 2 == 0;
        t.extra = 3 * addend;
        ASSERT_NO_FATAL_FAILURE(run(t));
      }
    }
  });
}

// The bits of C do not depend on the number of threads, nor on the rows and columns around.
void same_bits_for_any_number_of_threads() {
  for (const Dtype type : {Dtype::f32, Dtype::bf16})
    for (const bool transposed : {false, true}) {
      Case t{203, 171, 2 * GemmBlocks::kDepth + 3, transposed, transposed};
      t.in = t.out = type;
      t.bias = true;
      SCOPED_TRACE(t.text());
      Operands one(t);
      multiply(t, one, 1);
      for (const int threads : {2, 3, 5}) {
        Operands more(t);
        multiply(t, more, threads);
        ASSERT_TRUE(more.c.untouched_around());
        for (int64_t i = 0; i < t.m; ++i)
          for (int64_t j = 0; j < t.n; ++j) ASSERT_EQ(more.c.get(i, j), one.c.get(i, j)) << threads;
      }
      if (transposed) continue;  // else A's first rows are other numbers
      Case part = t;
      part.m = 8;
      Operands few(part);
      multiply(part, few, 1);
      for (int64_t i = 0; i < part.m; ++i)
        for (int64_t j = 0; j < t.n; ++j) ASSERT_EQ(few.c.get(i, j), one.c.get(i, j));
    }
  start_team({1, -1});
}

TEST(Gemm, SameBitsForAnyNumberOfThreads) { on_every_target(same_bits_for_any_number_of_threads); }

TEST(Gemm, NanAndInfinityArrive) {
  on_every_target([] {
    for (const Dtype out : {Dtype::f32, Dtype::bf16}) {
      Case t{20, 40, 30};
      t.in = t.out = out;
      Operands o(t);
      o.a.set(3, 4, kPoison);
      o.a.set(17, 0, std::numeric_limits<float>::infinity());
      multiply(t, o, 1);
      for (int64_t j = 0; j < t.n; ++j) {
        EXPECT_TRUE(std::isnan(o.c.get(3, j)));
        EXPECT_TRUE(std::isinf(o.c.get(17, j)));
        EXPECT_TRUE(std::isfinite(o.c.get(4, j)));
      }
    }
  });
}

TEST(Gemm, ScratchIsBoundedAndGrows) {
  EXPECT_LE(gemm_scratch_bytes(1 << 20, 1 << 20, 1 << 20, 1, Dtype::f32), 1 << 21);
  EXPECT_LE(gemm_scratch_bytes(1 << 20, 1 << 20, 1 << 20, 1, Dtype::bf16), 1 << 22);
  const int64_t sizes[] = {0, 1, 5, 16, 100, 256, 257, 1000, 100000};
  for (const Dtype c : {Dtype::f32, Dtype::bf16})
    for (size_t i = 0; i + 1 < std::size(sizes); ++i)
      for (const int64_t x : sizes) {
        const int64_t s = sizes[i], t = sizes[i + 1];
        EXPECT_LE(gemm_scratch_bytes(s, x, x, 1, c), gemm_scratch_bytes(t, x, x, 1, c));
        EXPECT_LE(gemm_scratch_bytes(x, s, x, 1, c), gemm_scratch_bytes(x, t, x, 1, c));
        EXPECT_LE(gemm_scratch_bytes(x, x, s, 1, c), gemm_scratch_bytes(x, x, t, 1, c));
        EXPECT_LE(gemm_scratch_bytes(x, x, s, 1, c), gemm_scratch_bytes(x, x, s, 2, c));
      }
}

TEST(Gemm, OpsStateEnoughScratch) {
  const Extent t{"T", 100}, d{"D", 300}, f{"F", 50};
  for (const int threads : {1, 2, 7}) {
    EXPECT_GE(find_op("matmul").workspace({{"trans_b", 1}},
                                          {{Dtype::f32, {t, d}}, {Dtype::f32, {f, d}}}, threads),
              gemm_scratch_bytes(100, 50, 300, threads, Dtype::f32));
    EXPECT_GE(find_op("matmul").workspace({{"trans_a", 1}},
                                          {{Dtype::bf16, {t, d}}, {Dtype::bf16, {t, f}}}, threads),
              gemm_scratch_bytes(300, 50, 100, threads, Dtype::bf16));
  }
}

TEST(Gemm, OtherTypesAreRefused) {
  const double x = 1;
  float y = 0;
  EXPECT_THROW(
      gemm(1, 1, 1, 1, {&x, Dtype::f64, 1}, {&y, Dtype::f32, 1}, &y, Dtype::f32, 1, {}, nullptr, 1),
      Error);
}

}  // namespace
}  // namespace plait
