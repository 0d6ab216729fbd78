// A rank's team of compute threads, kept by OpenMP's runtime; a rank has one team and no more. Idle
// members spin for a moment and then sleep; libgomp does not let them spin at all when there are
// more threads than cores.
//
//   parallel_for(args.threads, rows, 8, [&](int64_t begin, int64_t end) { ... });
//
// The division of the work is a function of n, grain and threads alone. A function must not throw,
// and must not start a team itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plait/kernels/device.h"

namespace plait {

// Device::start_team of the CPU.
void start_team(const Team& team);
// The core to which each thread of the caller's team is pinned; empty: some thread is not.
std::vector<int> team_cores(int threads);

namespace team_internal {
void run(int threads, void (*f)(void*, int, int), void* context);
}

// Calls f(thread, threads) once on every thread of the team. Fewer threads may come than were
// asked for, when the system has no more; f must go by the number it is given.
template <class F>
void on_team(int threads, F&& f) {
  if (threads <= 1) {
    f(0, 1);
    return;
  }
  team_internal::run(
      threads, [](void* context, int i, int n) { (*static_cast<F*>(context))(i, n); }, &f);
}

// Thread i's part of [0, n) in whole grains.
struct Part {
  int64_t begin, end;
};
inline Part part_of_team(int64_t n, int64_t grain, int i, int threads) {
  const int64_t grains = (n + grain - 1) / grain;
  return {std::min(n, grains * i / threads * grain),
          std::min(n, grains * (i + 1) / threads * grain)};
}

// Calls f(begin, end) for parts of [0, n) whose borders are multiples of grain; one a thread.
template <class F>
void parallel_for(int threads, int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  const auto most = static_cast<int>(std::min<int64_t>(threads, (n + grain - 1) / grain));
  on_team(most, [&](int i, int count) {
    const Part part = part_of_team(n, grain, i, count);
    if (part.begin < part.end) f(part.begin, part.end);
  });
}

}  // namespace plait
