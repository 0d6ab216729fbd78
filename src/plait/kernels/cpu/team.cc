#include "plait/kernels/cpu/team.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

// libgomp's own entry points: what a compiler makes of `#pragma omp parallel`. Called by name so
// that every compiler uses the same runtime.
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
void GOMP_parallel(void (*f)(void*), void* data, unsigned threads, unsigned flags);
}

namespace plait {

namespace {

struct Job {
  void (*f)(void*, int, int);
  void* context;
};

void work(void* data) {
  const auto* job = static_cast<const Job*>(data);
  job->f(job->context, omp_get_thread_num(), omp_get_num_threads());
}

// The calling thread moves to the `index`th of the cores that the process may use.
void pin(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(getpid(), sizeof allowed, &allowed) != 0) return;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || index-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

// The core that the calling thread is pinned to; negative: it may run on several, or none is known.
int pinned_core() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) != 1) return -1;
  int core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  return core;
}

}  // namespace

namespace team_internal {

void run(int threads, void (*f)(void*, int, int), void* context) {
  Job job{f, context};
  GOMP_parallel(work, &job, static_cast<unsigned>(threads), 0);
}

}  // namespace team_internal

void start_team(const Team& team) {
  omp_set_num_threads(team.threads);
  if (team.first_core < 0) return;
  on_team(team.threads, [&](int thread, int) { pin(team.first_core + thread); });
}

std::vector<int> team_cores(int threads) {
  std::vector<int> cores(static_cast<size_t>(threads), -1);
  on_team(threads, [&](int thread, int) { cores[static_cast<size_t>(thread)] = pinned_core(); });
  const bool all = std::all_of(cores.begin(), cores.end(), [](int core) { return core >= 0; });
  return all ? cores : std::vector<int>();
}

}  // namespace plait
