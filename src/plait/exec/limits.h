// What this machine can do at best, and what that allows an action to take: what the times of a
// step are held against.
//
//   const Limits limits = measure_limits(programs.threads, Dtype::f32);   // under half a second
//   const Cost c = cost_of(program, action, limits);
//   ... c.seconds of the seconds that it took
//
// A call can do no better than its FLOPs at the peak of a matmul, and no better than the bytes of
// its operands and results at the rate of a stream through memory. Tensors that lie in a cache can.
#pragma once

#include "plait/kernels/device.h"
#include "plait/program/program.h"

namespace plait {

// With the compute threads of one rank, the others being still.
struct Limits {
  int threads = 1;
  double flops_per_second = 0;       // best of some 768 x 768 x 768 matmuls in f32
  double bf16_flops_per_second = 0;  // ... and in bf16; 0: not measured
  double bytes_per_second = 0;       // best of some additions of two 64 MB tensors to a third
  double seconds = 0;                // that measuring took
};

// In a thread that ends with it, so that no team of compute threads stays behind. bf16 is measured
// only if it is the type; f64 has no fast kernels and is held against f32.
Limits measure_limits(int threads, Dtype dtype, const Device& device = cpu_device());

// Of one run of an action on one rank.
struct Cost {
  int64_t flops = 0;
  int64_t bytes = 0;     // read and written
  double seconds = 0;    // at best
  bool compute = false;  // FLOPs bind, not bytes
};

// For ops and for actions that fill, copy or slice. Communication and bookkeeping have no limit
// here: their cost is 0, but for the bytes that they move.
Cost cost_of(const Programs& programs, int rank, const Action& action, const Limits& limits);

}  // namespace plait
