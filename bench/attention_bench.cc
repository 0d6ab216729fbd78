// Attention and its gradient by length, heads, head size, element type and threads, beside oneDNN's
// square sgemm on the same threads: each iteration times all three once, so that whatever else
// runs on the machine disturbs them alike.
#include <benchmark/benchmark.h>
#include <dnnl.h>

#include <algorithm>
#include <ctime>
#include <span>
#include <vector>

#include "bench.h"
#include "plait/base/half.h"
#include "plait/base/rng.h"
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/device.h"

namespace plait::bench {
namespace {

struct Shape {
  int64_t tokens, length, heads, kv, size;
  Dtype dtype;
  int64_t window = 0;
};

// Wall time; of one thread the CPU's, which other processes disturb less.
double seconds(int threads) {
  timespec t{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Kernel fast_kernel(std::string_view op, Dtype dtype) {
  for (const FastKernel& k : fast_kernels())
    if (k.op == op) return dtype == Dtype::f32 ? k.f32 : k.bf16;
  fail("no fast kernel for {}", op);
}

// A forward and a backward call on one set of operands.
class Attention {
 public:
  Attention(const Shape& s, int threads) : shape_(s), threads_(threads) {
    const Extent t{"T", s.tokens, s.length}, h{"H", s.heads * s.size, s.size},
        g{"G", s.kv * s.size, s.size}, n{"", s.heads};
    const TensorType q{s.dtype, {t, h}}, k{s.dtype, {t, g}}, ids{Dtype::i32, {t}};
    const TensorType lse{Dtype::f32, {t, n}};
    attrs_ = {{"head_size", static_cast<double>(s.size)},
              {"window", static_cast<double>(s.window)}};
    const int64_t scratch =
        std::max(find_op("attention").workspace(attrs_, {q, k, k, ids}, threads),
                 find_op("attention_grad").workspace(attrs_, {q, k, k, ids, q, lse, q}, threads));
    arena_ = cpu_device().allocate(4 * q.bytes() + 4 * k.bytes() + ids.bytes() + lse.bytes() +
                                   scratch + 64 * 11);
    q_ = drawn(q), k_ = drawn(k), v_ = drawn(k), d_o_ = drawn(q);
    ids_ = memory(ids);
    for (int64_t i = 0; i < s.tokens; ++i)
      ids_.as<int32_t>()[i] = static_cast<int32_t>(i / s.length);
    o_ = memory(q), lse_ = memory(lse);
    dq_ = memory(q), dk_ = memory(k), dv_ = memory(k);
    workspace_ = piece(scratch);
  }
  ~Attention() { cpu_device().release(arena_); }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  void forward() {
    const TensorView in[] = {q_, k_, v_, ids_}, out[] = {o_, lse_};
    call("attention", in, out);
  }
  void backward() {
    const TensorView in[] = {q_, k_, v_, ids_, o_, lse_, d_o_}, out[] = {dq_, dk_, dv_};
    call("attention_grad", in, out);
  }
  // Operations of the products for pairs that count: 4 and 10 for each, head and value.
  double pairs() const {
    const int64_t w = shape_.window == 0 ? shape_.length : std::min(shape_.window, shape_.length);
    const double one = static_cast<double>(w) * static_cast<double>(w + 1) / 2 +
                       static_cast<double>((shape_.length - w) * w);
    return one * static_cast<double>(shape_.tokens / shape_.length * shape_.heads * shape_.size);
  }

 private:
  // One arena holds all, as in a run.
  std::byte* piece(int64_t bytes) {
    const int64_t at = used_;
    used_ += (bytes + 63) / 64 * 64;
    return arena_ + at;
  }
  TensorView memory(const TensorType& type) {
    TensorView v;
    v.data = piece(type.bytes());
    v.dtype = type.dtype;
    v.rank = static_cast<int>(type.dims.size());
    for (size_t d = 0; d < type.dims.size(); ++d) v.dims[d] = v.global[d] = type.dims[d].size;
    return v;
  }
  TensorView drawn(const TensorType& type) {
    const TensorView view = memory(type);
    for (int64_t i = 0; i < view.elements(); ++i) {
      const auto x = static_cast<float>(2 * uniform(1, Stream::test, next_++) - 1);
      if (type.dtype == Dtype::f32)
        view.as<float>()[i] = x;
      else
        view.as<uint16_t>()[i] = bf16_bits(x);
    }
    return view;
  }
  void call(std::string_view op, std::span<const TensorView> in, std::span<const TensorView> out) {
    KernelArgs args{&attrs_, in, out, workspace_};
    args.threads = threads_;
    fast_kernel(op, shape_.dtype)(args);
  }

  Shape shape_;
  int threads_;
  uint64_t next_ = 0;
  std::byte* arena_ = nullptr;
  int64_t used_ = 0;
  void* workspace_ = nullptr;
  Attrs attrs_;
  TensorView q_, k_, v_, ids_, o_, lse_, d_o_, dq_, dk_, dv_;
};

struct Times {
  std::vector<double> all;
  double median() const {
    std::vector<double> sorted = all;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  // Between the quartiles, as a share of the median.
  double spread() const {
    std::vector<double> sorted = all;
    std::sort(sorted.begin(), sorted.end());
    return (sorted[sorted.size() * 3 / 4] - sorted[sorted.size() / 4]) / median();
  }
};

template <class F>
double time(int threads, F&& f) {
  const double begin = seconds(threads);
  f();
  return seconds(threads) - begin;
}

// The time is that of both; rates are medians, operations in GFLOP/s of wall time.
void attention_share(benchmark::State& state, Dtype dtype) {
  const Shape s{state.range(0), state.range(1), state.range(2), state.range(3),
                state.range(4), dtype,          state.range(5)};
  const auto threads = static_cast<int>(state.range(6));
  cpu_device().start_team({threads, -1});
  constexpr int64_t kSide = 1024;
  std::vector<float> a(kSide * kSide, 0.5F), b = a, c = a;
  Attention attention(s, threads);
  attention.forward();
  Times peak, forward, backward;
  for (auto _ : state) {
    peak.all.push_back(time(threads, [&] {
      dnnl_sgemm('N', 'N', kSide, kSide, kSide, 1, a.data(), kSide, b.data(), kSide, 0, c.data(),
                 kSide);
    }));
    forward.all.push_back(time(threads, [&] { attention.forward(); }));
    backward.all.push_back(time(threads, [&] { attention.backward(); }));
    state.SetIterationTime(forward.all.back() + backward.all.back());
  }
  const double top = 2e-9 * kSide * kSide * kSide / peak.median();
  const double f = 4e-9 * attention.pairs() / forward.median();
  const double g = 10e-9 * attention.pairs() / backward.median();
  state.counters["sgemm"] = top;
  state.counters["forward"] = f;
  state.counters["backward"] = g;
  state.counters["forward_share"] = f / top;
  state.counters["backward_share"] = g / top;
  state.counters["forward_spread"] = forward.spread();
  state.counters["backward_spread"] = backward.spread();
}

// About the same work in every row but the longest, which need one head.
void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"T", "length", "heads", "kv", "size", "window", "threads"});
  for (const int64_t threads : {1, 2}) {
    for (const int64_t size : {64, 128}) {
      const int64_t by = size / 64;
      b->Args({4096, 512, 4 / by, 4 / by, size, 0, threads});
      b->Args({1024, 1024, 12 / by, 12 / by, size, 0, threads});
      b->Args({2048, 2048, 4 / by, 2 / by, size, 0, threads});
      b->Args({4096, 4096, 2 / by, 1, size, 0, threads});
      b->Args({8192, 8192, 1, 1, size, 0, threads});
    }
    b->Args({1024, 1024, 9, 3, 64, 0, threads});
    b->Args({8192, 8192, 1, 1, 64, 1024, threads});
    b->Args({4096, 64, 12, 12, 64, 0, threads});
    b->Args({4096, 8, 12, 12, 64, 0, threads});
  }
  b->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(7);
}
BENCHMARK_CAPTURE(attention_share, f32, Dtype::f32)->Apply(shapes);
BENCHMARK_CAPTURE(attention_share, bf16, Dtype::bf16)->Apply(shapes);

}  // namespace
}  // namespace plait::bench
