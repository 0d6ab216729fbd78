// How long a step will take here, before any: each distinct call of a kernel (op, attributes, local
// shapes) in the programs is timed on this machine, and the times are added up along each rank's
// list. It leaves out communication, the driver and caches that a real step keeps warm or cold, so
// it is an estimate; `plait train` prints it beside what was measured.
//
//   const StepEstimate e = measure_step(lowered.programs, 2.0);   // spends about two seconds
#pragma once

#include "plait/kernels/device.h"
#include "plait/program/program.h"

namespace plait {

struct StepEstimate {
  double seconds = 0;        // of a step: the slowest rank, or all ranks' work over the cores
  double rank_seconds = 0;   // of kernels on the busiest rank
  double total_seconds = 0;  // of kernels on all ranks together
  int64_t flops = 0;         // of all ranks together
  int64_t calls = 0, timed = 0, extrapolated = 0;  // distinct calls; the last by their FLOPs
};

// Calls that would take more than 1 GB of memory, or come after the time is spent, are extrapolated
// by FLOPs from those that were timed.
StepEstimate measure_step(const Programs& programs, double budget_seconds,
                          const Device& device = cpu_device());

}  // namespace plait
