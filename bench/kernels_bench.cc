// Fast kernels beside their plain references, on one thread, and the ring all-reduce between
// ranks that are threads.
#include <benchmark/benchmark.h>

#include <thread>

#include "bench.h"
#include "plait/comm/collectives.h"
#include "plait/kernels/device.h"

namespace plait::bench {
namespace {

constexpr bool kFast = true, kReference = false;

void time_call(benchmark::State& state, Call& call, bool fast) {
  cpu_device().start_team({1, -1});
  const Kernel kernel = fast ? cpu_device().kernel(call.op(), Dtype::f32) : call.op().reference.f32;
  for (auto _ : state) call.run(kernel);
  state.counters["FLOP"] = benchmark::Counter(
      call.flops() * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// y [m, n] = x [m, k] w [n, k]T, the forward layer.
void matmul(benchmark::State& state, bool fast) {
  const Extent m{"", state.range(0)}, k{"", state.range(1)}, n{"", state.range(2)};
  Call call("matmul", {{"trans_b", 1}}, {{Dtype::f32, {m, k}}, {Dtype::f32, {n, k}}});
  time_call(state, call, fast);
}

// llama-demo with 2 slots of 256: q_proj, gate_proj, down_proj and lm_head on one rank; gate_proj
// on one of 2 x 2 (dp x tp) ranks; then two squares.
void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "k", "n"})->Unit(benchmark::kMicrosecond)->MinTime(0.1);
  b->Args({512, 192, 192})->Args({512, 192, 512})->Args({512, 512, 192})->Args({512, 192, 256});
  b->Args({256, 192, 256})->Args({512, 512, 512})->Args({1024, 1024, 1024});
}
BENCHMARK_CAPTURE(matmul, fast, kFast)->Apply(shapes);
BENCHMARK_CAPTURE(matmul, reference, kReference)->Apply(shapes);

struct Attention {
  Attrs attrs{{"head_size", 32}};
  TensorType q, kv, sequences, lse;
  explicit Attention(int64_t tokens) {
    const Extent t{"T", tokens, tokens}, h{"H", 192, 32}, g{"G", 64, 32}, heads{"", 6};
    q = {Dtype::f32, {t, h}};
    kv = {Dtype::f32, {t, g}};
    sequences = {Dtype::i32, {t}};
    lse = {Dtype::f32, {t, heads}};
  }
  Call forward() const { return {"attention", attrs, {q, kv, kv, sequences}}; }
};

// One sequence of T tokens, 6 heads of 32 over 2 key/value heads, as in llama-demo.
void attention(benchmark::State& state, bool fast) {
  Call call = Attention(state.range(0)).forward();
  time_call(state, call, fast);
}

void attention_grad(benchmark::State& state, bool fast) {
  const Attention a(state.range(0));
  Call forward = a.forward();
  forward.run(cpu_device().kernel(forward.op(), Dtype::f32));
  Call call("attention_grad", a.attrs, {a.q, a.kv, a.kv, a.sequences, a.q, a.lse, a.q});
  forward.give(0, call, 4);
  forward.give(1, call, 5);
  time_call(state, call, fast);
}

void lengths(benchmark::internal::Benchmark* b) {
  b->ArgName("T")->Unit(benchmark::kMicrosecond)->MinTime(0.1);
  b->Arg(256)->Arg(512)->Arg(1024);
}
BENCHMARK_CAPTURE(attention, fast, kFast)->Apply(lengths);
BENCHMARK_CAPTURE(attention, reference, kReference)->Apply(lengths);
BENCHMARK_CAPTURE(attention_grad, fast, kFast)->Apply(lengths);
BENCHMARK_CAPTURE(attention_grad, reference, kReference)->Apply(lengths);

// `rounds` all-reduces of one buffer for each iteration, so that starting the threads does not
// count for much. Bytes: of the buffer, once for each all-reduce.
void ring_all_reduce(benchmark::State& state) {
  constexpr int kRounds = 50;
  const int ranks = static_cast<int>(state.range(0));
  const int64_t bytes = state.range(1), elements = bytes / 4;
  ChannelPlan channels;
  Ring ring;
  for (int r = 0; r < ranks; ++r) {
    ring.ranks.push_back(r);
    channels[{r, (r + 1) % ranks}] = bytes / ranks + 4;
  }
  LocalWorld world(ranks, channels, 2, 60);
  std::vector<std::vector<float>> data(static_cast<size_t>(ranks));
  for (auto& d : data) d.assign(static_cast<size_t>(elements), 0.0f);
  auto work = [&](int rank) {
    Ring mine = ring;
    mine.me = static_cast<size_t>(rank);
    auto* memory = reinterpret_cast<std::byte*>(data[mine.me].data());
    for (int i = 0; i < kRounds; ++i)
      ring_all_reduce(world.transport(rank), mine, memory, elements, Dtype::f32, Reduce::sum);
  };
  for (auto _ : state) {
    std::vector<std::thread> threads;
    for (int r = 1; r < ranks; ++r) threads.emplace_back(work, r);
    work(0);
    for (std::thread& t : threads) t.join();
  }
  state.SetBytesProcessed(state.iterations() * kRounds * bytes);
}
BENCHMARK(ring_all_reduce)
    ->ArgNames({"ranks", "bytes"})
    ->ArgsProduct({{2, 4}, {4 << 10, 256 << 10, 4 << 20}})
    ->Unit(benchmark::kMillisecond)
    ->MinTime(0.1)
    ->UseRealTime();

}  // namespace
}  // namespace plait::bench
