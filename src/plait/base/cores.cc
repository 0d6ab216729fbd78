#include "plait/base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace plait {

int usable_cores() {
  cpu_set_t allowed;
  // Of the process's first thread: compute threads are pinned.
  if (sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0)
    return std::max(1, CPU_COUNT(&allowed));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace plait
