// gemm beside oneDNN's own best, in turns in one process: the shapes of GPT-2 124M with 1024
// tokens, of a Llama of 135M with 2048, and of a demo's model; forward, and both products of
// backward.
#include <fmt/format.h>

#include <cstring>
#include <ctime>
#include <dnnl.hpp>
#include <functional>
#include <memory>

#include "bench.h"
#include "plait/base/rng.h"
#include "plait/kernels/cpu/gemm.h"
#include "plait/kernels/cpu/team.h"

namespace plait::bench {
namespace {

struct Shape {
  int64_t m, n, k;
  bool ta, tb;
  int64_t lda() const { return ta ? m : k; }
  int64_t ldb() const { return tb ? k : n; }
  double flops() const {
    return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// y = x wT, dx = dy w, dw = dyT x for y [t, f] and x [t, d].
void add_layer(std::vector<Shape>& shapes, int64_t t, int64_t f, int64_t d) {
  shapes.push_back({t, f, d, false, true});
  shapes.push_back({t, d, f, false, false});
  shapes.push_back({f, d, t, true, false});
}

std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (const auto& [f, d] : std::vector<std::pair<int64_t, int64_t>>{
           {768, 768}, {2304, 768}, {3072, 768}, {768, 3072}, {50257, 768}})
    add_layer(shapes, 1024, f, d);
  for (const auto& [f, d] : std::vector<std::pair<int64_t, int64_t>>{
           {576, 576}, {192, 576}, {1536, 576}, {576, 1536}, {49152, 576}})
    add_layer(shapes, 2048, f, d);
  add_layer(shapes, 512, 192, 192);
  add_layer(shapes, 512, 192, 512);
  return shapes;
}

// Processor time of a single thread, which other processes disturb little; else time of the wall.
double now(int threads) {
  timespec t{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Memory aligned as arenas are.
struct Memory {
  std::unique_ptr<void, void (*)(void*)> data;
  explicit Memory(int64_t bytes)
      : data(std::aligned_alloc(64, static_cast<size_t>(GemmBlocks::up(bytes + 1, 64))),
             std::free) {
    std::memset(data.get(), 0, static_cast<size_t>(bytes));
  }
};

struct Buffers {
  Memory a, b, c, a16, b16, c16, scratch;
  Buffers(const Shape& s, int threads)
      : a(4 * s.m * s.k),
        b(4 * s.n * s.k),
        c(4 * s.m * s.n),
        a16(2 * s.m * s.k),
        b16(2 * s.n * s.k),
        c16(2 * s.m * s.n),
        scratch(gemm_scratch_bytes(s.m, s.n, s.k, threads, Dtype::bf16)) {
    fill(a, s.m * s.k);
    fill(b, s.n * s.k);
  }
  static void fill(const Memory& to, int64_t size) {
    for (int64_t i = 0; i < size; ++i)
      static_cast<float*>(to.data.get())[i] =
          static_cast<float>(uniform(1, Stream::test, static_cast<uint64_t>(i)) - 0.5);
  }
};

using Call_f = std::function<void()>;

Call_f onednn_matmul(const Shape& s, const Buffers& x, const dnnl::engine& engine) {
  using dnnl::memory;
  constexpr auto f32 = memory::data_type::f32;
  const memory::desc a({s.m, s.k}, f32, s.ta ? memory::dims{1, s.m} : memory::dims{s.k, 1});
  const memory::desc b({s.k, s.n}, f32, memory::format_tag::any);
  const memory::desc c({s.m, s.n}, f32, memory::dims{s.n, 1});
  const dnnl::matmul::primitive_desc record({a, b, c}, engine);
  const std::unordered_map<int, memory> args = {
      {DNNL_ARG_SRC, memory(a, engine, x.a.data.get())},
      {DNNL_ARG_WEIGHTS, memory(record.weights_desc(), engine)},
      {DNNL_ARG_DST, memory(c, engine, x.c.data.get())}};
  return
      [f = dnnl::matmul(record), args, stream = dnnl::stream(engine)] { f.execute(stream, args); };
}

Call_f onednn_inner_product(const Shape& s, const dnnl::engine& engine) {
  using dnnl::memory;
  const auto any = [](int64_t rows, int64_t columns) {
    return memory::desc({rows, columns}, memory::data_type::f32, memory::format_tag::any);
  };
  const dnnl::inner_product_forward::primitive_desc record(
      {dnnl::prop_kind::forward_inference, any(s.m, s.k), any(s.n, s.k), any(s.m, s.n)}, engine);
  const std::unordered_map<int, memory> args = {
      {DNNL_ARG_SRC, memory(record.src_desc(), engine)},
      {DNNL_ARG_WEIGHTS, memory(record.weights_desc(), engine)},
      {DNNL_ARG_DST, memory(record.dst_desc(), engine)}};
  for (auto [name, m] : args) std::memset(m.get_data_handle(), 0, m.get_desc().get_size());
  return [f = dnnl::inner_product_forward(record), args, stream = dnnl::stream(engine)] {
    f.execute(stream, args);
  };
}

// gemm in f32 and in bf16, then oneDNN's three ways.
std::vector<Call_f> calls_of(const Shape& s, const Buffers& x, int threads,
                             const dnnl::engine& engine) {
  void* scratch = x.scratch.data.get();
  auto own = [=](Dtype t, const Memory& a, const Memory& b, const Memory& c) -> Call_f {
    return [=, pa = a.data.get(), pb = b.data.get(), pc = c.data.get()] {
      gemm(s.m, s.n, s.k, 1, {pa, t, s.lda(), s.ta}, {pb, t, s.ldb(), s.tb}, pc, t, s.n, {},
           scratch, threads);
    };
  };
  auto sgemm = [=, a = static_cast<float*>(x.a.data.get()), b = static_cast<float*>(x.b.data.get()),
                c = static_cast<float*>(x.c.data.get())] {
    dnnl_sgemm(s.ta ? 'T' : 'N', s.tb ? 'T' : 'N', s.m, s.n, s.k, 1, a, s.lda(), b, s.ldb(), 0, c,
               s.n);
  };
  return {own(Dtype::f32, x.a, x.b, x.c), own(Dtype::bf16, x.a16, x.b16, x.c16), sgemm,
          onednn_matmul(s, x, engine), onednn_inner_product(s, engine)};
}

struct Times {
  std::vector<double> seconds;
  double at(double share) const {
    return seconds[static_cast<size_t>(share * static_cast<double>(seconds.size() - 1))];
  }
  double median() const { return at(0.5); }
  double spread() const { return (at(0.75) - at(0.25)) / median(); }
};

// All calls in turns, for `budget` seconds and at least 5 rounds.
std::vector<Times> measure(const std::vector<Call_f>& calls, double flops, int threads,
                           double budget) {
  const int repeats = std::max(1, static_cast<int>(3e7 / flops));
  std::vector<Times> times(calls.size());
  const double begin = now(threads);
  for (int round = 0; round < 6 || now(threads) - begin < budget; ++round)
    for (size_t i = 0; i < calls.size(); ++i) {
      const double start = now(threads);
      for (int r = 0; r < repeats; ++r) calls[i]();
      if (round > 0) times[i].seconds.push_back((now(threads) - start) / repeats);
    }
  for (Times& t : times) std::sort(t.seconds.begin(), t.seconds.end());
  return times;
}

// FLOP/s of one thread on registers: the median, since short bursts run above it.
double multiply_add_rate() {
  std::vector<double> rates;
  for (int i = 0; i < 101; ++i) {
    const double start = now(1), flop = multiply_adds(100000);
    rates.push_back(flop / (now(1) - start));
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

}  // namespace

int gemm_table(int threads, double seconds) {
  start_team({threads, -1});
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const double peak = multiply_add_rate() * threads;
  fmt::print("threads {}, peak {:.0f} GFLOP/s (multiply-adds on registers, times threads)\n\n",
             threads, peak / 1e9);
  fmt::print(
      "| m | n | k | layout | f32 GFLOP/s | spread | bf16 | oneDNN sgemm | matmul | inner product "
      "| f32 / oneDNN's best | f32 / peak |\n|{}\n",
      "---|---|---|---|---|---|---|---|---|---|---|---|");
  double lowest = 1e9;
  for (const Shape& s : all_shapes()) {
    const Buffers x(s, threads);
    const auto t = measure(calls_of(s, x, threads, engine), s.flops(), threads, seconds);
    auto rate = [&](size_t i) { return s.flops() / t[i].median(); };
    const double ratio = rate(0) / std::max({rate(2), rate(3), rate(4)});
    lowest = std::min(lowest, ratio);
    fmt::print(
        "| {} | {} | {} | {}{} | {:.1f} | {:.0f} % | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.3f} | "
        "{:.2f} |\n",
        s.m, s.n, s.k, s.ta ? 'T' : 'N', s.tb ? 'T' : 'N', rate(0) / 1e9, 100 * t[0].spread(),
        rate(1) / 1e9, rate(2) / 1e9, rate(3) / 1e9, rate(4) / 1e9, ratio, rate(0) / peak);
    std::fflush(stdout);
  }
  fmt::print("\nlowest ratio {:.3f}\n", lowest);
  return 0;
}

}  // namespace plait::bench
