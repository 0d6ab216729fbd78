// The CPU's table with every kernel wrapped: how often each op was called, for how long, and what
// it allocated. What a step takes beyond this sum is the executor's own.
//
//   SessionOptions options;
//   options.device = &timed_device();
//   Session session(programs, options);       // kernels are wrapped now
//   reset_kernel_times();
//   session.step(batch);
//   for (const KernelTime& k : kernel_times()) ... k.op, k.seconds, k.calls
//
// One set of counters for the process, so one rank at a time. Two readings of the clock a call,
// about 50 ns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocations.h"
#include "plait/kernels/device.h"

namespace plait::peers {

struct KernelTime {
  std::string op;
  int64_t calls = 0;
  double seconds = 0;
  Allocations made;  // in the process during the calls
};

const Device& timed_device();
void reset_kernel_times();
std::vector<KernelTime> kernel_times();  // of ops that were called; the longest first

}  // namespace plait::peers
