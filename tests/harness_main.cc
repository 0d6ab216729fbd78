// plait_harness: random plans held against one rank, and planted faults. See harness.h.
//
//   plait_harness --plans 300 --seed 1 --mutants
//   plait_harness --case failing.case --dtype f32 --target AVX2
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <sstream>

#include "harness.h"
#include "plait/kernels/cpu/targets.h"
//
#include "hwy/highway.h"

namespace plait {
namespace {

int run_one(const Case& c, Dtype dtype) {
  const CaseResult r = run_case(c, dtype);
  const char* kOutcome[] = {"passed", "refused", "failed"};
  fmt::print("{} ({} ranks)\n{}\n", kOutcome[static_cast<size_t>(r.outcome)], r.ranks, r.what);
  return r.outcome == Outcome::failed ? 1 : 0;
}

void print_tally(const MutantTally& tally) {
  std::array<int64_t, 4> all{};
  fmt::print("\n{:<48} {:>8} {:>9} {:>9} {:>9}\n", "planted fault", "planted", "verifier",
             "numbers", "survived");
  for (const auto& [kind, t] : tally.by_kind) {
    fmt::print("{:<48} {:>8} {:>9} {:>9} {:>9}\n", kind, t[0], t[1], t[2], t[3]);
    for (size_t i = 0; i < 4; ++i) all[i] += t[i];
  }
  fmt::print("{:<48} {:>8} {:>9} {:>9} {:>9}\n", "all", all[0], all[1], all[2], all[3]);
  for (const std::string& s : tally.survivors) fmt::print("survived: {}\n", s);
}

int run_many(int64_t plans, uint64_t seed, bool with_mutants, int f32_every) {
  std::array<int64_t, 3> outcomes{};
  std::map<int, int64_t> by_ranks;
  std::map<std::string, int64_t> refusals;
  std::map<Dtype, double> worst;
  std::map<Dtype, int64_t> counted;
  MutantTally tally;
  for (int64_t i = 0; i < plans; ++i) {
    const Case c = random_case(seed * 1000003 + static_cast<uint64_t>(i));
    bool runs = true;
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      if (dtype != Dtype::f64 && i % f32_every != 0) continue;
      const CaseResult r = run_case(c, dtype);
      ++outcomes[static_cast<size_t>(r.outcome)];
      if (dtype == Dtype::f64) ++by_ranks[r.ranks];
      ++counted[dtype];
      worst[dtype] = std::max(worst[dtype], r.worst);
      if (r.outcome == Outcome::refused) ++refusals[r.what];
      runs = runs && r.outcome == Outcome::passed;
      if (r.outcome != Outcome::failed) continue;
      fmt::print("FAILED ({}): {}\nshrunk:\n", info(dtype).name, r.what);
      const Case small = shrink(c, dtype);
      fmt::print("{}{}\n", print_case(small), run_case(small, dtype).what);
    }
    if (with_mutants && runs && i % 4 == 0) plant_mutants(c, 24, tally);
  }
  fmt::print("{} plans, {} runs in f64, {} in f32, {} in bf16: {} passed, {} refused, {} failed\n",
             plans, counted[Dtype::f64], counted[Dtype::f32], counted[Dtype::bf16], outcomes[0],
             outcomes[1], outcomes[2]);
  for (const auto& [ranks, n] : by_ranks)
    fmt::print("  {} rank{}: {}\n", ranks, ranks == 1 ? "" : "s", n);
  for (const auto& [what, n] : refusals) fmt::print("  refused {} times: {}\n", n, what);
  fmt::print("largest error, as a share of its tolerance: f64 {:.3g}, f32 {:.3g}, bf16 {:.3g}\n",
             worst[Dtype::f64], worst[Dtype::f32], worst[Dtype::bf16]);
  if (with_mutants) print_tally(tally);
  // A harness whose plans are mostly refused would prove nothing.
  const bool too_many_refused = outcomes[1] * 5 > plans;
  if (too_many_refused) fmt::print("more than a fifth of the plans were refused\n");
  return outcomes[2] > 0 || too_many_refused || !tally.survivors.empty() ? 1 : 0;
}

// From now on kernels of the instruction set of this name: those of another machine's failure.
void choose_target(const std::string& name) {
  std::string known;
  for (int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    known += fmt::format(" {}", hwy::TargetName(target));
    if (name != hwy::TargetName(target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    return hwy::GetChosenTarget().Update(target);
  }
  fail("no kernels for '{}' run here; expected one of:{}", name, known);
}

}  // namespace
}  // namespace plait

int main(int argc, char** argv) {
  CLI::App app{"random plans against one rank"};
  int64_t plans = 300;
  uint64_t seed = 1;
  bool mutants = false;
  std::string dtype = "f64";
  int f32_every = 4;
  std::string case_file, target;
  app.add_option("--plans", plans, "how many random plans");
  app.add_option("--seed", seed, "of the draws");
  app.add_flag("--mutants", mutants, "plant faults as well");
  app.add_option("--f32-every", f32_every, "every n-th plan also in f32 and in bf16")
      ->check(CLI::PositiveNumber);
  app.add_option("--case", case_file, "run one case from a file");
  app.add_option("--dtype", dtype, "of the case: f64, f32 or bf16")
      ->check(CLI::IsMember({"f64", "f32", "bf16"}));
  app.add_option("--target", target, "instruction set of the kernels, as Highway calls it");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!target.empty()) plait::choose_target(target);
    if (case_file.empty()) return plait::run_many(plans, seed, mutants, f32_every);
    std::ifstream in(case_file);
    if (!in) plait::fail("'{}' cannot be opened", case_file);
    std::stringstream text;
    text << in.rdbuf();
    return plait::run_one(plait::parse_case(text.str(), case_file), plait::parse_dtype(dtype));
  } catch (const std::exception& e) {
    std::cerr << "plait_harness: " << e.what() << "\n";
    return 1;
  }
}
