// Session: a verified set of programs on the local world, one thread per rank, and the states that
// live between steps.
//
//   Session session(lowered.programs, {});
//   session.set_states("param/", parameters);
//   session.step(batch);
//   double loss = session.scalar("loss");
//   HostTensors trained = session.gather("param/");
//
// An error on any rank stops all of them; step() throws it with rank and action named, and the
// session cannot be used further.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plait/base/host_tensor.h"
#include "plait/program/verify.h"

namespace plait {

struct Device;

// What the driver hands to the `input` actions of one step: global tensors.
struct Batch {
  std::vector<HostTensors> microbatches;
  HostTensors step;  // inputs of micro-batch -1: "hyper"
};

struct SessionOptions {
  bool pin = false;                // bind compute threads to cores, where there is one for each
  bool poison = false;             // fill memory with NaN when it is allocated and released
  double limit_seconds = 300;      // without any message a waiting rank calls it a hang
  bool trust = false;              // run without verifying; for tests that plant faults
  const Device* device = nullptr;  // null: the CPU's; another table, to time or count its calls
};

// What is looked at while a step runs: for diagnosis, since it reads every result once more. Every
// floating-point result and the states before the step, for values that are not finite; every
// result that several ranks hold, for a difference in bits.
struct Watch {
  bool finite = false;
  bool replicas = false;
  bool times = false;  // when each action ran
};

// When an action ran, in nanoseconds of one steady clock for all ranks.
struct ActionTime {
  int64_t begin = 0, end = 0;
};

// One step under a watch of times, as the driver saw it and by action.
struct StepTimes {
  int64_t step = 0;
  double seconds = 0;                            // of all of it: data, the session's step, checks
  double session_seconds = 0;                    // of Session::step
  std::vector<std::vector<ActionTime>> actions;  // by rank, parallel to its program's actions
};

// What a rank counted itself in the last step, to be held against the verifier's report.
struct RankCounters {
  int64_t sent_bytes = 0;
  int64_t peak_live_bytes = 0;
};

class Session {
 public:
  Session(Programs programs, const SessionOptions& options);
  ~Session();

  const Programs& programs() const;
  const VerifyReport& report() const;  // empty when `trust`
  uint64_t digest() const;

  // Sets every state "PREFIX + NAME" from the global tensors by NAME, on each rank its part.
  // Throws when a name is missing, when one is no state, when a shape differs.
  void set_states(const std::string& prefix, const HostTensors& tensors);
  // All states with the prefix as global tensors, without the prefix.
  HostTensors gather(const std::string& prefix) const;
  // Throws Error naming the state when replicas of it differ in any bit.
  void check_replicas(const std::string& prefix) const;
  double scalar(const std::string& state, int rank = 0) const;

  void step(const Batch& batch);
  // Looks at results from the next step on: that step throws NotFinite (exec/watch.h), which says
  // where the first such value arose, or Error naming the first result whose replicas differ. A
  // step whose loss or gradient norm is not finite has changed no parameter and no state of the
  // optimizer, so it can be repeated under a watch:
  //
  //   session.watch({.finite = true});
  //   try { session.step(batch); } catch (const NotFinite& e) { ... e.where.tensor ... }
  void watch(const Watch& what);
  const std::vector<RankCounters>& counters() const;
  // Of the last step under a watch of times: by rank, parallel to the actions of its program.
  std::vector<std::vector<ActionTime>> times() const;
  // By rank, the core to which each compute thread is pinned; empty: they are not.
  const std::vector<std::vector<int>>& cores() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plait
