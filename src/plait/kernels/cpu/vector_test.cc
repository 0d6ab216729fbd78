// Every vector kernel against its op's plain reference, on the calls that the op's record gives as
// samples, enlarged to awkward shapes; and what samples do not show.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hold.h"
#include "plait/base/half.h"
#include "plait/ir/fused.h"

namespace plait {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Sequences do not grow with their extent; orthogonalize and to_bf16 have tests of their own.
bool has_samples_to_enlarge(const FastKernel& kernel) {
  return !kernel.op.starts_with("attention") && kernel.op != "orthogonalize" &&
         kernel.op != "to_bf16";
}

// A sample with extent T times `tokens` and the other named extents times `width`; extents without
// a name, and K, the size of a head, have a meaning that other operands or attributes know.
KernelCall enlarged(const OpDef& op, const OpSample& sample, int64_t tokens, int64_t width) {
  KernelCall c{op, sample.attrs, sample.in};
  c.integers = sample.integers;
  c.low = sample.low;
  c.high = sample.high;
  c.unused = sample.unused;
  for (TensorType& t : c.in)
    for (Extent& e : t.dims)
      if (!e.name.empty() && e.name != "K") e.size *= e.name == "T" ? tokens : width;
  c.values.resize(c.in.size());
  for (size_t i = 0; i < c.in.size(); ++i)  // learning rate and step of an update
    if (c.in[i].dims.size() == 1 && c.in[i].dims[0].name.empty()) c.values[i] = {0.01, 3};
  return c;
}

TEST(VectorKernels, SamplesOfEveryShape) {
  for (const FastKernel& kernel : fast_kernels()) {
    if (!has_samples_to_enlarge(kernel)) continue;
    const OpDef& op = find_op(kernel.op);
    for (const OpSample& sample : op.samples())
      for (const auto& [tokens, width] : std::vector<std::pair<int64_t, int64_t>>{
               {1, 1}, {0, 1}, {3, 0}, {11, 11}, {1, 43}, {37, 3}}) {
        if (width == 0 && sample.integers) continue;  // no id is one of an empty vocabulary
        hold(enlarged(op, sample, tokens, width), kernel);
      }
  }
}

// Enough elements for three threads, and for several blocks of a sum.
TEST(VectorKernels, SamplesThatAreDivided) {
  for (const FastKernel& kernel : fast_kernels()) {
    if (!has_samples_to_enlarge(kernel)) continue;
    const OpDef& op = find_op(kernel.op);
    hold(enlarged(op, op.samples().back(), 31, 19), kernel);
  }
}

// ---- activations at every size of the argument ------------------------------------------------

const std::vector<std::string_view> kActivations = {"silu",       "gelu", "gelu_erf",
                                                    "gelu_quick", "relu", "squared_relu"};

std::vector<double> sizes() {
  std::vector<double> x;
  for (double v = -30; v <= 30; v += 0.0117) x.push_back(static_cast<float>(v));
  for (int e = -149; e < 126; ++e)
    for (const double m : {1.0, -1.37}) x.push_back(static_cast<float>(std::ldexp(m, e)));
  return x;
}

// Each result by itself, not by the largest: relative, but for what f64 itself cancels.
TEST(VectorKernels, ActivationsOfSmallAndLargeArguments) {
  const std::vector<double> x = sizes();
  const TensorType type{Dtype::f32, {{"T", static_cast<int64_t>(x.size())}}};
  for (const std::string_view name : kActivations)
    for (const bool gradient : {false, true}) {
      const OpDef& op = find_op(std::string(name) + (gradient ? "_grad" : ""));
      KernelCall c{op, {}, {type}, {x}};
      if (gradient) c.in.push_back(type), c.values.push_back(std::vector<double>(x.size(), 0.75));
      const auto exact = run_kernel(c, op.reference.f64, {Dtype::f64})[0];
      on_every_target([&](const char* target) {
        const auto found = run_kernel(c, fast_kernel(op.name).f32, {})[0];
        for (size_t i = 0; i < x.size(); ++i) {
          if (std::abs(exact[i]) > std::numeric_limits<float>::max()) continue;
          const double limit = gradient ? 2e-6 * std::max(1.0, std::abs(x[i])) * 0.1 +
                                              8 * std::exp2(-23) * std::abs(exact[i])
                                        : 40 * std::exp2(-23) * std::abs(exact[i]) + 1e-13;
          ASSERT_NEAR(found[i], exact[i], limit) << op.name << " of " << x[i] << ", " << target;
        }
      });
    }
}

TEST(VectorKernels, NanStaysNanAndInfinitiesHaveLimits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> x = {nan, kInf, -kInf, 1, nan, 1e30, -1e30, 0, 2, nan, 3};
  const TensorType type{Dtype::f32, {{"T", static_cast<int64_t>(x.size())}}};
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const std::string_view name : {"silu", "gelu", "gelu_erf", "gelu_quick", "scale"}) {
      const OpDef& op = find_op(name);
      Attrs attrs;
      if (name == "scale") attrs["by"] = 1;
      const KernelCall c{op, attrs, {type}, {x}};
      on_every_target([&](const char* target) {
        const auto y = run_kernel(c, fast_kernel(name).f32, {dtype})[0];
        for (const size_t i : {0, 4, 9}) EXPECT_TRUE(std::isnan(y[i])) << name << " " << target;
        EXPECT_EQ(y[1], kInf) << name << " " << target;
        EXPECT_GT(y[5], 9e29);
        EXPECT_TRUE(y[6] == 0 || name == "scale") << name << " " << target;
      });
    }
}

TEST(VectorKernels, SoftCapIsExactForSmallArguments) {
  const std::vector<double> x = sizes();
  const OpDef& op = find_op("soft_cap");
  const KernelCall c{
      op, {{"cap", 2}}, {{Dtype::f32, {{"T", static_cast<int64_t>(x.size())}}}}, {x}};
  const auto exact = run_kernel(c, op.reference.f64, {Dtype::f64})[0];
  on_every_target([&](const char* target) {
    const auto found = run_kernel(c, fast_kernel("soft_cap").f32, {})[0];
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(found[i], exact[i], 4 * std::exp2(-23) * std::abs(exact[i]) + 0x1p-149)
          << x[i] << ", " << target;
  });
}

// ---- bf16 storage -----------------------------------------------------------------------------

// Every number half-way between two of bf16, and its neighbours: scale by 1 reads and rounds.
TEST(VectorKernels, BfloatIsRoundedToNearestEven) {
  std::vector<float> sums;
  for (uint32_t top = 0; top < 0x7f80; top += 7)
    for (const uint32_t low : {0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      sums.push_back(std::bit_cast<float>(top << 16 | low));
  // a f32 operand and a bf16 result: a table row, gathered
  const auto n = static_cast<int64_t>(sums.size());
  std::vector<uint16_t> y(sums.size(), 0x7fff);
  int32_t id = 0;
  const auto view = [](void* data, Dtype dtype, std::vector<int64_t> dims) {
    TensorView v;
    v.data = data;
    v.dtype = dtype;
    v.rank = static_cast<int>(dims.size());
    for (size_t d = 0; d < dims.size(); ++d) v.dims[d] = v.global[d] = dims[d];
    return v;
  };
  const std::vector<TensorView> in = {view(sums.data(), Dtype::f32, {1, n}),
                                      view(&id, Dtype::i32, {1})};
  const std::vector<TensorView> out = {view(y.data(), Dtype::bf16, {1, n})};
  const Attrs attrs;
  on_every_target([&](const char* target) {
    fast_kernel("embedding").bf16({&attrs, in, out, nullptr, 1});
    for (size_t i = 0; i < sums.size(); ++i)
      ASSERT_EQ(y[i], bf16_bits(sums[i])) << sums[i] << ", " << target;
  });
}

// ---- results past the cache -------------------------------------------------------------------

// Large enough that results are written past the cache; rows of odd length begin anywhere.
TEST(VectorKernels, LargeResultsAreWhole) {
  const Extent t{"T", 131}, v{"V", 50257};
  const OpDef& op = find_op("lse_grad");
  const KernelCall c = with_values(
      {op, {}, {{Dtype::f32, {t, v}}, {Dtype::f32, {t}}, {Dtype::f32, {t}}}}, Dtype::f32);
  const auto fast = run_kernel(c, fast_kernel("lse_grad").f32, {Dtype::f32, 2})[0];
  const auto plain = run_kernel(c, op.reference.f32, {Dtype::f32})[0];
  double largest = 0;
  for (size_t i = 0; i < fast.size(); ++i)
    largest = std::max(largest, std::abs(fast[i] - plain[i]));
  EXPECT_LE(largest, 32 * std::exp2(-23));
}

// ---- norms ------------------------------------------------------------------------------------

// Rows with a large mean and a small deviation: the variance is that of centred values.
TEST(VectorKernels, LayerNormOfLargeMeans) {
  const Extent t{"T", 9}, d{"D", 1029};
  KernelCall c = with_values({find_op("layer_norm"),
                              {{"eps", 1e-5}},
                              {{Dtype::f32, {t, d}}, {Dtype::f32, {d}}, {Dtype::f32, {d}}}},
                             Dtype::f32);
  for (double& v : c.values[0]) v = static_cast<float>(64 + v);
  const auto exact = run_kernel(c, c.op.reference.f64, {Dtype::f64})[0];
  on_every_target([&](const char* target) {
    const auto found = run_kernel(c, fast_kernel("layer_norm").f32, {})[0];
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], exact[i], 5e-5) << target;
  });
}

// ---- rope -------------------------------------------------------------------------------------

TEST(VectorKernels, RopeOfFarPositionsAndWideHeads) {
  const std::vector<int32_t> far = {0, 1, 1, 1000000, 999999, 131071, 7, 2147483647, -5};
  const Extent t{"T", static_cast<int64_t>(far.size())};
  for (const auto& [size, rotary] :
       std::vector<std::pair<int64_t, int64_t>>{{128, 128}, {640, 602}, {6, 2}, {96, 24}})
    for (const int interleaved : {0, 1})
      for (const double theta : {1e4, 1e6}) {
        const Extent h{"H", 3 * size, size};
        Attrs attrs = {{"head_size", static_cast<double>(size)},
                       {"rotary_size", static_cast<double>(rotary)},
                       {"theta", theta},
                       {"interleaved", static_cast<double>(interleaved)}};
        KernelCall c{find_op("rope"), attrs, {{Dtype::f32, {t, h}}, {Dtype::i32, {t}}}};
        c.integers = [&](size_t, int64_t i) { return far[static_cast<size_t>(i)]; };
        hold(c);
      }
  // Frequencies so large that angles go beyond what vectors reduce.
  KernelCall c{find_op("rope"),
               {{"head_size", 4}, {"frequencies", std::vector<double>{1e6, 0.5}}},
               {{Dtype::f32, {t, {"H", 8, 4}}}, {Dtype::i32, {t}}}};
  c.integers = [&](size_t, int64_t i) { return far[static_cast<size_t>(i)] / 2; };
  hold(c);
}

// ---- the head ---------------------------------------------------------------------------------

TEST(VectorKernels, LogSumExpOfExtremeRows) {
  constexpr int64_t kColumns = 5003;  // several chunks, and a rest
  std::vector<double> x(7 * kColumns, -kInf);
  const auto row = [&](size_t t) { return x.begin() + static_cast<int64_t>(t) * kColumns; };
  row(0)[4500] = 3;                      // alone, behind chunks of nothing
  std::fill_n(row(1), kColumns, 3e38);   // sums of large numbers
  std::fill_n(row(2), kColumns, -3e38);  // ... and of small ones
  for (int64_t j = 0; j < kColumns; ++j)
    row(3)[j] = static_cast<float>(0.02 * static_cast<double>(j));
  for (int64_t j = 0; j < kColumns; ++j)
    row(4)[j] = static_cast<float>(-0.02 * static_cast<double>(j));
  row(5)[5002] = kInf;
  row(6)[1] = std::numeric_limits<double>::quiet_NaN();
  row(6)[3000] = 1;
  std::vector<double> none(kColumns, -kInf);
  x.insert(x.end(), none.begin(), none.end());
  const KernelCall c{find_op("row_lse"), {}, {{Dtype::f32, {{"T", 8}, {"V", kColumns}}}}, {x}};
  const auto exact = run_kernel(c, c.op.reference.f64, {Dtype::f64})[0];
  on_every_target([&](const char* target) {
    const auto y = run_kernel(c, fast_kernel("row_lse").f32, {})[0];
    for (size_t t = 0; t < 5; ++t)
      EXPECT_NEAR(y[t], exact[t], 2e-7 * std::abs(exact[t]) + 1e-6) << target << " row " << t;
    EXPECT_FALSE(std::isfinite(y[5])) << target;
    EXPECT_TRUE(std::isnan(y[6])) << target;
    EXPECT_EQ(y[7], -kInf) << target;
  });
}

// Labels and ids of other shards, of none, and of no row at all.
TEST(VectorKernels, IdsOfShards) {
  const Extent t{"T", 5}, v{"V", 7}, d{"D", 6};
  const auto ids = [](size_t, int64_t i) { return static_cast<int32_t>(i * 4 % 20); };
  const TensorType logits{Dtype::f32, {t, v}}, table{Dtype::f32, {v, d}}, labels{Dtype::i32, {t}};
  const TensorType column{Dtype::f32, {t}}, rows{Dtype::f32, {t, d}};
  for (const int64_t begin : {0, 5, 13}) {
    const KernelPlace columns{1, begin, 20}, lines{0, begin, 20};
    hold({find_op("pick"), {}, {logits, labels}, {}, columns, ids});
    hold({find_op("pick_grad"), {}, {logits, labels, column}, {}, columns, ids, -1, 1, {0}});
    hold({find_op("embedding"), {}, {table, labels}, {}, lines, ids});
  }
  for (const int32_t bad : {-1, 7}) {
    const auto wrong = [=](size_t, int64_t i) { return i == 3 ? bad : 0; };
    const std::vector<KernelCall> calls = {
        {find_op("pick"), {}, {logits, labels}, {}, {}, wrong},
        {find_op("pick_grad"), {}, {logits, labels, column}, {}, {}, wrong},
        {find_op("embedding"), {}, {table, labels}, {}, {}, wrong},
        {find_op("embedding_grad"), {}, {table, labels, rows}, {}, {}, wrong}};
    for (const KernelCall& c : calls)
      EXPECT_THROW(run_kernel(with_values(c, Dtype::f32), fast_kernel(c.op.name).f32, {}), Error)
          << c.op.name;
  }
}

// ---- updates ----------------------------------------------------------------------------------

TEST(VectorKernels, AScaleThatIsNotFiniteLeavesEverything) {
  for (const auto& [name, scale] :
       std::vector<std::pair<std::string_view, size_t>>{{"adamw", 5},
                                                        {"sgd", 3},
                                                        {"sgd_momentum", 4},
                                                        {"adafactor_moment", 3},
                                                        {"adafactor_step", 4},
                                                        {"muon_momentum", 2},
                                                        {"muon_step", 3}}) {
    const OpDef& op = find_op(name);
    KernelCall c = with_values(enlarged(op, op.samples().back(), 3, 7), Dtype::f32);
    c.values[scale] = {kInf};
    for (const bool in_place : {false, true}) {
      const auto found = run_kernel(c, fast_kernel(name).f32, {Dtype::f32, 1, in_place});
      for (const auto& [result, operand] : op.in_place)
        EXPECT_EQ(found[result], c.values[operand]) << name;
    }
  }
}

TEST(VectorKernels, RoundsToBf16AsItsReference) {
  const OpDef& op = find_op("to_bf16");
  std::vector<float> in;
  for (const double v : sizes()) in.push_back(static_cast<float>(v));
  in.push_back(std::numeric_limits<float>::infinity());
  std::vector<uint16_t> found(in.size()), expected(in.size());
  const auto view = [&](void* data, Dtype dtype) {
    TensorView v;
    v.data = data;
    v.dtype = dtype;
    v.rank = 1;
    v.dims[0] = v.global[0] = static_cast<int64_t>(in.size());
    return v;
  };
  const TensorView from = view(in.data(), Dtype::f32);
  const auto call = [&](Kernel kernel, std::vector<uint16_t>& out) {
    const TensorView to = view(out.data(), Dtype::bf16);
    const Attrs none;
    kernel({&none, {&from, 1}, {&to, 1}, nullptr, 2, &op});
  };
  call(run_reference, expected);
  on_every_target([&](const char* target) {
    call(fast_kernel("to_bf16").bf16, found);
    EXPECT_EQ(found, expected) << target;
  });
}

}  // namespace
}  // namespace plait
