#include "plait/kernels/cpu/micro_bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "plait/base/half.h"
#include "plait/base/rng.h"

namespace plait {
namespace {

using bf16_micro::kColumns;
using bf16_micro::kRows;
using bf16_micro::Strip;
using bf16_micro::whole;

// bf16 elements that begin at 64 bytes.
struct Packed {
  std::vector<uint16_t> memory;
  uint16_t* data;
  explicit Packed(int64_t elements)
      : memory(static_cast<size_t>(elements) + 32, 0x7fc0) {  // NaN where nothing is written
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    data = memory.data() + (64 - address % 64) % 64 / 2;
  }
};

std::vector<uint16_t> random(int64_t elements, uint64_t seed) {
  std::vector<uint16_t> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = bf16_bits(static_cast<float>(normal(seed, Stream::test, i, 0)));
  return values;
}

float value(const std::vector<uint16_t>& m, int64_t i) {
  return bf16_value(m[static_cast<size_t>(i)]);
}

std::vector<uint16_t> transposed(const std::vector<uint16_t>& m, int64_t rows, int64_t columns) {
  std::vector<uint16_t> to(m.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to[static_cast<size_t>(j * rows + i)] = m[static_cast<size_t>(i * columns + j)];
  return to;
}

// All of A [m, k] B [k, n] by tiles, onto c or not.
std::vector<float> product(int64_t m, int64_t n, int64_t k, const uint16_t* strips,
                           const uint16_t* panels, std::vector<float> c, bool add) {
  const bf16_micro::Session session;
  for (int64_t i = 0; i < m; i += kRows)
    for (int64_t j = 0; j < n; j += kColumns)
      session.multiply(std::min(kRows, m - i), std::min(kColumns, n - j), whole(k),
                       Strip::packed(strips + i * whole(k)), panels + j * whole(k),
                       c.data() + i * n + j, n, add);
  return c;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class MicroBf16 : public testing::TestWithParam<Bf16Unit> {
 protected:
  void SetUp() override {
    if (!use_bf16_unit(GetParam())) GTEST_SKIP() << "not on this machine: " << name(GetParam());
  }
  void TearDown() override { use_bf16_unit(was_); }

 private:
  Bf16Unit was_ = bf16_unit();
};

TEST_P(MicroBf16, ProductsAreThoseOfDoubles) {
  for (const int64_t m : {1, 5, 16, 17, 32, 45, 64})
    for (const int64_t n : {1, 16, 31, 32, 33, 70})
      for (const int64_t k : {1, 2, 31, 32, 33, 100, 256}) {
        SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
        const auto a = random(m * k, 1), b = random(k * n, 2);
        const auto at = transposed(a, m, k), bt = transposed(b, k, n);
        Packed strips(whole(m) * whole(k)), strips_t(whole(m) * whole(k));
        Packed panels(whole(n) * whole(k)), panels_t(whole(n) * whole(k));
        bf16_micro::pack_a(m, k, a.data(), k, strips.data);
        bf16_micro::pack_a_transposed(m, k, at.data(), m, strips_t.data);
        bf16_micro::pack_b(k, n, b.data(), n, panels.data);
        bf16_micro::pack_b_transposed(k, n, bt.data(), k, panels_t.data);
        const auto elements = static_cast<size_t>(m * n);
        for (const bool add : {false, true}) {
          const std::vector<float> before(elements, add ? 0.5F : NAN);
          const auto c = product(m, n, k, strips.data, panels.data, before, add);
          EXPECT_TRUE(same_bits(c, product(m, n, k, strips_t.data, panels_t.data, before, add)));
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              double expected = add ? 0.5 : 0, magnitude = expected;
              for (int64_t l = 0; l < k; ++l) {
                const double term = static_cast<double>(value(a, i * k + l)) * value(b, l * n + j);
                expected += term;
                magnitude += std::abs(term);
              }
              EXPECT_NEAR(c[static_cast<size_t>(i * n + j)], expected,
                          static_cast<double>(k + 2) * 0x1p-24 * magnitude);
            }
        }
      }
}

// A row's bits depend on neither how many rows there are, nor on whether they are packed.
TEST_P(MicroBf16, BitsOfARowAreItsOwn) {
  const int64_t k = 96, ld = 101;
  const auto a = random(kRows * ld, 3), b = random(k * kColumns, 4);
  Packed strip(kRows * k), panel(k * kColumns);
  bf16_micro::pack_a(kRows, k, a.data(), ld, strip.data);
  bf16_micro::pack_b(k, kColumns, b.data(), kColumns, panel.data);
  std::vector<float> all(kRows * kColumns), in_place(all);
  const bf16_micro::Session session;
  session.multiply(kRows, kColumns, k, Strip::packed(strip.data), panel.data, all.data(), kColumns,
                   false);
  session.multiply(kRows, kColumns, k, Strip::rows(a.data(), ld), panel.data, in_place.data(),
                   kColumns, false);
  EXPECT_TRUE(same_bits(all, in_place));
  for (int64_t rows = 1; rows <= kRows; ++rows) {
    std::vector<float> some(kRows * kColumns, 7);
    session.multiply(rows, kColumns, k, Strip::packed(strip.data), panel.data, some.data(),
                     kColumns, false);
    const auto written = static_cast<size_t>(rows * kColumns);
    EXPECT_EQ(std::memcmp(some.data(), all.data(), written * sizeof(float)), 0) << rows;
    for (size_t i = written; i < some.size(); ++i) EXPECT_EQ(some[i], 7) << rows;
  }
}

TEST_P(MicroBf16, NanAndInfinityPass) {
  const int64_t k = 64;
  auto a = random(kRows * k, 5);
  const std::vector<uint16_t> b(static_cast<size_t>(k * kColumns), bf16_bits(1.0F));
  a[3 * k + 40] = bf16_bits(static_cast<float>(NAN));
  a[7 * k + 2] = bf16_bits(INFINITY);
  Packed strip(kRows * k), panel(k * kColumns);
  bf16_micro::pack_a(kRows, k, a.data(), k, strip.data);
  bf16_micro::pack_b(k, kColumns, b.data(), kColumns, panel.data);
  const auto c = product(kRows, kColumns, k, strip.data, panel.data,
                         std::vector<float>(kRows * kColumns), false);
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      const float found = c[static_cast<size_t>(i * kColumns + j)];
      EXPECT_EQ(std::isnan(found), i == 3);
      EXPECT_EQ(std::isinf(found), i == 7);
    }
}

INSTANTIATE_TEST_SUITE_P(Units, MicroBf16, testing::Values(Bf16Unit::avx512, Bf16Unit::amx),
                         [](const auto& info) {
                           return info.param == Bf16Unit::amx ? "Amx" : "Avx512";
                         });

}  // namespace
}  // namespace plait
