// Where the time of a training step goes: by op, beside what this machine allows at best, with the
// gap between the two. From programs and the times of their actions; nothing is estimated.
//
//   const Limits limits = measure_limits(programs.threads, Dtype::f32);   // before the run
//   trainer.keep_times(5);  trainer.run(...);
//   const Profile p = profile(programs, trainer.times(), limits);
//   fmt::print("{}", profile_table(p));
//
// With several ranks, calls and bytes are those of all, and times the mean of a rank.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plait/exec/limits.h"
#include "plait/exec/session.h"

namespace plait {

// What a row is, and what the totals add up. An action that waits for other ranks gives two rows:
// until the last of them has come, and from then on.
enum class Part : uint8_t { matmul, attention, other, moved, sent, waiting };
const char* to_string(Part part);

// One step's worth, the mean of the steps.
struct ProfileRow {
  std::string name, shapes;  // shapes only when asked for
  Part part = Part::other;
  double calls = 0;    // of all ranks
  double seconds = 0;  // of all ranks together
  double flops = 0, bytes = 0;
  double limit_seconds = 0;    // 0: has none
  double compute_seconds = 0;  // of it, of calls that FLOPs bind
};

struct Profile {
  std::vector<int64_t> steps;
  int ranks = 1, threads = 1;
  Limits limits;
  std::vector<ProfileRow> rows;  // the slowest first
  // Means of a rank: of all rows, of walking the program besides, of being done or not yet begun
  // while the session's step lasts, of the driver outside of it; together the step.
  double rows_seconds = 0, executor_seconds = 0, idle_seconds = 0, driver_seconds = 0;
  double step_seconds = 0;
};

// `steps` are of these programs, and at least one. by_shape: a row for every op and local shapes.
Profile profile(const Programs& programs, const std::deque<StepTimes>& steps, const Limits& limits,
                bool by_shape = false);

std::string profile_table(const Profile& profile);
nlohmann::ordered_json profile_json(const Profile& profile);

// For how long, in nanoseconds, each action of each rank waited for other ranks: a receiver until
// the sender began, a collective until the last of its ranks came. 0 for all else.
std::vector<std::vector<int64_t>> waits(const Programs& programs,
                                        const std::vector<std::vector<ActionTime>>& times);

bool is_listed(ActionKind kind);  // else bookkeeping: alloc, free, join
bool is_communication(ActionKind kind);
std::string local_shapes(const Program& program, const Action& action);  // "8x32 16x32 -> 8x16"
std::string rate_text(double per_second, const char* unit);              // "61.2 GFLOP/s"

// "1 rank x 2 threads, pinned to cores 0-1"; by rank, the cores of its threads (Session::cores).
std::string threads_text(int threads, const std::vector<std::vector<int>>& cores);

}  // namespace plait
