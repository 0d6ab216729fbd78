// A whole training step of llama-demo, AdamW and clipping included, on one rank and on two. All
// plans do the same work: one micro-batch of 2 x 128 tokens.
#include <benchmark/benchmark.h>

#include <chrono>

#include "bench.h"
#include "plait/model/families.h"
#include "plait/program/lower.h"

namespace plait::bench {
namespace {

constexpr const char* kOneRank = "mesh = []";
constexpr const char* kData = "mesh = ['dp=2']\n[split]\nT = 'dp'\n";
constexpr const char* kTensor =
    "mesh = ['tp=2']\n[split]\nH = 'tp'\nG = 'tp'\nF = 'tp'\nV = 'tp'\n";

// Of the one-rank benchmark on one thread, which stands first: what `speedup` compares with.
double one_rank_steps = 0, one_rank_seconds = 0;

void training_step(benchmark::State& state, const char* plan_text, int threads_per_rank) {
  const Model model = load_model("llama-demo", {2, 128}, Head::loss);
  const Plan plan = parse_plan(plan_text, "bench");
  const Batch batch = random_batch(model, 1);
  LowerOptions options;
  options.threads = threads_per_rank;
  Session session(lower(model, plan, options).programs, {});
  session.set_states("param/", initial_parameters(model, 1));
  session.step(batch);  // warms caches, and oneDNN's
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) session.step(batch);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto steps = static_cast<double>(state.iterations());
  if (plan.mesh.ranks() == 1 && threads_per_rank == 1) {
    one_rank_steps += steps;
    one_rank_seconds += seconds;
  }
  state.counters["steps"] = benchmark::Counter(steps, benchmark::Counter::kIsRate);
  if (one_rank_steps > 0)
    state.counters["speedup"] = steps / seconds * one_rank_seconds / one_rank_steps;
}

void settings(benchmark::internal::Benchmark* b) {
  b->Unit(benchmark::kMillisecond)->MinTime(0.8)->UseRealTime();
}
BENCHMARK_CAPTURE(training_step, 1_rank_1_thread, kOneRank, 1)->Apply(settings);
BENCHMARK_CAPTURE(training_step, 1_rank_2_threads, kOneRank, 2)->Apply(settings);
BENCHMARK_CAPTURE(training_step, 2_ranks_dp, kData, 1)->Apply(settings);
BENCHMARK_CAPTURE(training_step, 2_ranks_tp, kTensor, 1)->Apply(settings);

}  // namespace
}  // namespace plait::bench
