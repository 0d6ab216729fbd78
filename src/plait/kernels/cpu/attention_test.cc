// Attention and its gradient against the references in f64: every target of this machine, f32 and
// bf16, any number of threads with the same bits, in no more workspace than the ops state.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "plait/base/half.h"
#include "plait/base/rng.h"
#include "plait/kernels/cpu/cpu.h"

namespace plait {
namespace {

struct Setup {
  std::vector<int> lengths;
  int64_t heads = 2, kv = 1, size = 8;  // of the whole
  Attrs attrs = {};
  int64_t first = 0, here = -1;        // the query heads of this rank; negative: all
  int64_t first_kv = 0, kv_here = -1;  // its key/value heads
};

// One operand or result, in f64 and as a kernel sees it.
struct Tensor {
  TensorType type;
  std::vector<double> values;
  int64_t begin = 0, whole = 0;  // along dimension 1; whole 0: it is
};

struct Problem {
  const OpDef& op;
  Attrs attrs;
  std::vector<Tensor> in;
  std::vector<Tensor> out;  // exact
  // For each result, the largest sum of absolute contributions to an element; empty: the largest
  // result stands for it.
  std::vector<double> contributions = {};
};

// Bytes with the same pattern before and behind them, which must survive.
class Guarded {
 public:
  Guarded(int64_t bytes, std::byte fill)
      : size_(static_cast<size_t>(bytes)), all_(size_ + 2 * kGuard + 64, kPattern) {
    const auto at = reinterpret_cast<uintptr_t>(all_.data()) + kGuard;
    data_ = all_.data() + kGuard + (64 - at % 64) % 64;
    std::fill_n(data_, size_, fill);
  }
  std::byte* data() const { return data_; }
  std::vector<std::byte> copy() const { return {data_, data_ + size_}; }
  void check() const {
    const std::byte *begin = all_.data(), *end = begin + all_.size();
    auto kept = [](std::byte b) { return b == kPattern; };
    EXPECT_TRUE(std::all_of(begin, static_cast<const std::byte*>(data_), kept) &&
                std::all_of(static_cast<const std::byte*>(data_) + size_, end, kept))
        << "written outside a buffer of " << size_ << " bytes";
  }

 private:
  static constexpr size_t kGuard = 128;
  static constexpr std::byte kPattern{0x5a};
  size_t size_;
  std::vector<std::byte> all_;
  std::byte* data_;
};

double stored(double v, Dtype dtype) {
  if (dtype == Dtype::bf16) return bf16_value(bf16_bits(v));
  return dtype == Dtype::f32 ? static_cast<float>(v) : v;
}

void write(const Tensor& t, Dtype dtype, std::byte* to) {
  for (size_t i = 0; i < t.values.size(); ++i) {
    if (dtype == Dtype::i32)
      reinterpret_cast<int32_t*>(to)[i] = static_cast<int32_t>(t.values[i]);
    else if (dtype == Dtype::f32)
      reinterpret_cast<float*>(to)[i] = static_cast<float>(t.values[i]);
    else if (dtype == Dtype::bf16)
      reinterpret_cast<uint16_t*>(to)[i] = bf16_bits(t.values[i]);
    else
      reinterpret_cast<double*>(to)[i] = t.values[i];
  }
}

double read(const std::vector<std::byte>& from, Dtype dtype, size_t i) {
  if (dtype == Dtype::f32) return reinterpret_cast<const float*>(from.data())[i];
  if (dtype == Dtype::bf16) return bf16_value(reinterpret_cast<const uint16_t*>(from.data())[i]);
  return reinterpret_cast<const double*>(from.data())[i];
}

// The type that a tensor has in a call of `dtype`: lse is f32 in calls of bf16.
Dtype type_in(const Tensor& t, Dtype dtype) {
  if (t.type.dtype == Dtype::i32) return Dtype::i32;
  const bool lse = t.type.dims[1].name.empty();
  return lse && dtype == Dtype::bf16 ? Dtype::f32 : dtype;
}

// The results' bytes; everything that the kernel does not own is NaN beforehand.
std::vector<std::vector<std::byte>> call(const Problem& p, Kernel kernel, Dtype dtype,
                                         int threads) {
  std::vector<Guarded> memory;
  memory.reserve(p.in.size() + p.out.size());
  std::vector<TensorView> in, out;
  std::vector<TensorType> types;
  auto view = [&](const Tensor& t, bool given) {
    TensorView v;
    v.dtype = type_in(t, dtype);
    memory.emplace_back(dtype_bytes(v.dtype, t.type.elements()), std::byte{0xff});
    v.data = memory.back().data();
    v.rank = static_cast<int>(t.type.dims.size());
    for (size_t d = 0; d < t.type.dims.size(); ++d) v.dims[d] = v.global[d] = t.type.dims[d].size;
    if (t.whole > 0) v.begin[1] = t.begin, v.global[1] = t.whole;
    if (given) write(t, v.dtype, memory.back().data());
    return v;
  };
  for (const Tensor& t : p.in) {
    in.push_back(view(t, true));
    types.push_back({in.back().dtype, t.type.dims});
  }
  for (const Tensor& t : p.out) out.push_back(view(t, false));
  const Guarded workspace(p.op.workspace(p.attrs, types, threads), std::byte{0xff});
  KernelArgs args{&p.attrs, in, out, workspace.data()};
  args.threads = threads;
  kernel(args);
  workspace.check();
  std::vector<std::vector<std::byte>> found;
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i].check();
    if (i >= p.in.size()) found.push_back(memory[i].copy());
  }
  return found;
}

void solve(Problem& p) {
  const auto found = call(p, p.op.reference.f64, Dtype::f64, 1);
  for (size_t r = 0; r < found.size(); ++r) {
    const auto count = static_cast<size_t>(p.out[r].type.elements());
    for (size_t i = 0; i < count; ++i) p.out[r].values.push_back(read(found[r], Dtype::f64, i));
  }
}

// The sum of the products a b, or of their absolute values.
double dot(const double* a, const double* b, int64_t n, bool absolute) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += absolute ? std::abs(a[i] * b[i]) : a[i] * b[i];
  return sum;
}

// The largest sums of absolute contributions to dq and to dk, in which do . v and do . o cancel.
std::vector<double> contributions(const Problem& p, int64_t size, int64_t group, int64_t first_q,
                                  int64_t first_kv) {
  const double scale = attr_or(p.attrs, "scale", 1 / std::sqrt(static_cast<double>(size)));
  const double cap = attr_or(p.attrs, "soft_cap", 0), window = attr_or(p.attrs, "window", 0);
  const int64_t tokens = p.in[0].type.dims[0].size, heads = p.in[0].type.dims[1].size / size;
  const int64_t kv_heads = p.in[1].type.dims[1].size / size;
  const double *q = p.in[0].values.data(), *k = p.in[1].values.data(), *v = p.in[2].values.data();
  const double *o = p.in[4].values.data(), *lse = p.in[5].values.data();
  const double* d_o = p.in[6].values.data();
  const double* ids = p.in[3].values.data();
  std::vector<double> dq(p.in[0].values.size()), dk(p.in[1].values.size());
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = (i * heads + h) * size, g = (first_q + h) / group - first_kv;
      for (int64_t j = i; j >= 0 && ids[j] == ids[i]; --j) {
        if (window != 0 && static_cast<double>(i - j) >= window) break;
        const int64_t to = (j * kv_heads + g) * size;
        double s = scale * dot(q + at, k + to, size, false);
        if (cap != 0) s = cap * std::tanh(s / cap);
        const double ds = std::exp(s - lse[i * heads + h]) * scale *
                          (dot(d_o + at, v + to, size, true) + dot(d_o + at, o + at, size, true));
        for (int64_t l = 0; l < size; ++l) {
          dq[static_cast<size_t>(at + l)] += ds * std::abs(k[to + l]);
          dk[static_cast<size_t>(to + l)] += ds * std::abs(q[at + l]);
        }
      }
    }
  auto largest = [](const std::vector<double>& x) {
    return x.empty() ? 0 : *std::max_element(x.begin(), x.end());
  };
  return {largest(dq), largest(dk), 0};
}

Kernel fast_kernel(std::string_view op, Dtype dtype) {
  for (const FastKernel& k : fast_kernels())
    if (k.op == op) return dtype == Dtype::f32 ? k.f32 : k.bf16;
  fail("no fast kernel for {}", op);
}

void compare(const Problem& p, const std::vector<std::vector<std::byte>>& found, Dtype dtype,
             const std::string& what) {
  for (size_t r = 0; r < found.size(); ++r) {
    const std::vector<double>& exact = p.out[r].values;
    double largest = p.contributions.empty() ? 0 : p.contributions[r];
    for (const double v : exact) largest = std::max(largest, std::abs(v));
    const Dtype type = type_in(p.out[r], dtype);
    for (size_t i = 0; i < exact.size(); ++i) {
      const double rounding = type == Dtype::bf16 ? std::exp2(-8) * std::abs(exact[i]) : 0;
      ASSERT_LE(std::abs(read(found[r], type, i) - exact[i]),
                p.op.fast_error * std::exp2(-23) * largest + rounding)
          << p.op.name << " result " << r << " element " << i << " of " << exact.size() << ", "
          << what;
    }
  }
}

// The kernel on every target, and with 1, 2 and 3 threads on the best.
void hold(const Problem& p, Dtype dtype, const std::string& what) {
  const Kernel kernel = fast_kernel(p.op.name, dtype);
  const int64_t all = hwy::SupportedTargets();
  for (int64_t targets = all; targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    const auto found = call(p, kernel, dtype, 1);
    const std::string on = what + " on " + hwy::TargetName(target);
    compare(p, found, dtype, on);
    for (int threads = 2; threads <= (targets == all ? 3 : 1); ++threads)
      EXPECT_EQ(found, call(p, kernel, dtype, threads))
          << p.op.name << " with " << threads << " threads, " << on;
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    if (::testing::Test::HasFailure()) return;
  }
}

Tensor tensor(const Extent& t, int64_t heads, int64_t size, int64_t first, int64_t whole) {
  return {{Dtype::f64, {t, {"H", heads * size, size}}}, {}, first * size, whole * size};
}

void draw(Tensor& t, Dtype dtype, uint64_t stream) {
  const auto count = static_cast<uint64_t>(t.type.elements());
  for (uint64_t i = 0; i < count; ++i)
    t.values.push_back(stored(2 * uniform(stream, Stream::test, i) - 1, dtype));
}

void hold(const Setup& s, Dtype dtype) {
  Extent t{"T", 0, 0};
  std::vector<double> ids;
  for (size_t i = 0; i < s.lengths.size(); ++i) {
    t.size += s.lengths[i];
    ids.insert(ids.end(), static_cast<size_t>(s.lengths[i]), static_cast<double>(i % 5));
  }
  t.unit = std::max<int64_t>(1, t.size);
  const int64_t here = s.here < 0 ? s.heads : s.here, kv = s.kv_here < 0 ? s.kv : s.kv_here;
  std::string what = info(dtype).name.data();
  what += fmt::format(" head size {}, heads {} to {} of {} over {} to {} of {}, lengths {}", s.size,
                      s.first, s.first + here, s.heads, s.first_kv, s.first_kv + kv, s.kv,
                      fmt::join(s.lengths, " "));
  for (const auto& [name, value] : s.attrs) what += fmt::format(", {} {}", name, to_string(value));
  Tensor q = tensor(t, here, s.size, s.first, s.heads), k = tensor(t, kv, s.size, s.first_kv, s.kv);
  Tensor v = k, o = q, d_o = q, lse{{Dtype::f64, {t, {"", here, 1}}}, {}};
  draw(q, dtype, 1), draw(k, dtype, 2), draw(v, dtype, 3), draw(d_o, dtype, 4);
  const Tensor sequences{{Dtype::i32, {t}}, ids};
  Attrs attrs = s.attrs;
  attrs["head_size"] = static_cast<double>(s.size);
  Problem forward{find_op("attention"), attrs, {q, k, v, sequences}, {o, lse}};
  solve(forward);
  hold(forward, dtype, what);
  if (::testing::Test::HasFailure()) return;
  o.values = forward.out[0].values, lse.values = forward.out[1].values;
  for (double& x : o.values) x = stored(x, dtype);
  for (double& x : lse.values) x = stored(x, dtype == Dtype::f64 ? dtype : Dtype::f32);
  Problem backward{
      find_op("attention_grad"),
      attrs,
      {q, k, v, sequences, o, lse, d_o},
      {tensor(t, here, s.size, 0, 0), tensor(t, kv, s.size, 0, 0), tensor(t, kv, s.size, 0, 0)}};
  solve(backward);
  backward.contributions = contributions(backward, s.size, s.heads / s.kv, s.first, s.first_kv);
  hold(backward, dtype, what);
}

void hold_both(const Setup& s) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    hold(s, dtype);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Attention, HeadSizes) {
  for (const int64_t size : {1, 5, 8, 17, 24, 32, 64, 80, 96, 128, 256, 264})
    hold_both({.lengths = {37, 1, 14}, .size = size});
}

// Around the borders of panels (2, 16 and 32 queries), of 64 queries, and of blocks (48 to 192).
TEST(Attention, LengthsAroundBlocks) {
  for (const int length : {1, 2, 15, 16, 17, 33, 63, 64, 65, 191, 192, 193, 385})
    hold_both({.lengths = {length}, .size = 8});
  for (const int length : {95, 96, 97, 193}) hold_both({.lengths = {length}, .size = 96});
  for (const int length : {47, 48, 49, 98}) hold_both({.lengths = {length}, .size = 176});
}

TEST(Attention, PackedSequences) {
  hold_both({.lengths = {24, 24}, .heads = 4, .kv = 4});
  hold_both({.lengths = {1, 23, 7, 17}, .heads = 4, .kv = 2});
  hold_both({.lengths = {200, 1, 1, 1, 21, 70}, .heads = 6, .kv = 2});
  std::vector<int> many;
  for (int i = 0; i < 120; ++i) many.push_back(1 + i * 7 % 9);
  hold_both({.lengths = many, .heads = 3, .kv = 1, .size = 16});
  hold_both({.lengths = std::vector<int>(50, 1), .heads = 3, .kv = 3});
}

TEST(Attention, WindowCapAndScale) {
  for (const int window : {1, 2, 15, 16, 17, 63, 100, 192, 193, 250, 1000})
    hold_both({.lengths = {230, 3, 21}, .size = 8, .attrs = {{"window", window}}});
  for (const int window : {0, 1, 5, 17, 100})
    hold_both({.lengths = {200, 3, 21},
               .size = 8,
               .attrs = {{"window", window}, {"soft_cap", 0.4}, {"scale", 0.6}}});
  hold_both({.lengths = {500}, .size = 8, .attrs = {{"window", 193}}});
  hold_both({.lengths = {500}, .size = 8, .attrs = {{"window", 40}, {"soft_cap", 30}}});
}

TEST(Attention, GroupedHeads) {
  for (const auto& [heads, kv] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 4}, {4, 2}, {6, 1}, {9, 3}, {8, 1}})
    hold_both({.lengths = {40, 213}, .heads = heads, .kv = kv, .size = 16});
}

// A rank that holds some query heads and all key/value heads, or some of these, or none at all.
TEST(Attention, SomeHeads) {
  for (const auto& [first, here] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 2}, {3, 3}, {5, 1}, {6, 0}})
    hold_both({.lengths = {24, 7, 17},
               .heads = 6,
               .kv = 3,
               .attrs = {{"window", 6}},
               .first = first,
               .here = here});
  hold_both({.lengths = {24, 7},
             .heads = 8,
             .kv = 4,
             .first = 4,
             .here = 4,
             .first_kv = 2,
             .kv_here = 2});
  hold_both({.lengths = {24, 7}, .heads = 8, .kv = 4, .here = 0, .kv_here = 0});
}

TEST(Attention, NoTokens) { hold_both({.lengths = {}}); }

TEST(Attention, LongSequence) { hold_both({.lengths = {2048}, .heads = 1, .kv = 1, .size = 16}); }

// A NaN stays where it belongs: in the token's own row and those after it.
TEST(Attention, NanStaysNan) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const Extent t{"T", 70, 70};
    Tensor q = tensor(t, 1, 8, 0, 1), k = q, v = q, lse{{Dtype::f64, {t, {"", 1, 1}}}, {}};
    draw(q, dtype, 1), draw(k, dtype, 2), draw(v, dtype, 3);
    q.values[20 * 8] = std::nan("");
    const Problem p{find_op("attention"),
                    {{"head_size", 8}},
                    {q, k, v, {{Dtype::i32, {t}}, std::vector<double>(70, 1.0)}},
                    {q, lse}};
    const auto found = call(p, fast_kernel("attention", dtype), dtype, 1);
    for (size_t i = 0; i < 70 * 8; ++i)
      EXPECT_EQ(std::isnan(read(found[0], dtype, i)), i / 8 == 20) << "element " << i;
    for (size_t i = 0; i < 70; ++i)
      EXPECT_EQ(std::isnan(read(found[1], Dtype::f32, i)), i == 20) << "token " << i;
  }
}

}  // namespace
}  // namespace plait
