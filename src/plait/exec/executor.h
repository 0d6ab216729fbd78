// Executor: walks one rank's program. Everything that can be decided before the first step is:
// kernels, views and blocks are prepared when it is made, and a step allocates nothing.
#pragma once

#include <memory>

#include "plait/comm/collectives.h"
#include "plait/exec/session.h"
#include "plait/exec/watch.h"
#include "plait/kernels/device.h"

namespace plait {

class Executor {
 public:
  Executor(const Programs& programs, int rank, Transport& transport, const Device& device,
           const SessionOptions& options);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Throws Error that names the action in which it arose; NotFinite when that is looked for.
  void step(const Batch& batch);
  // What to look for from the next step on.
  void watch(const Watch& what) { watch_ = what; }
  // Throws NotFinite when a state that a step reads holds such a value.
  void check_states() const;
  const ResultDigests& digests() const { return digests_; }        // of the last step, if watched
  const std::vector<ActionTime>& times() const { return times_; }  // likewise

  std::byte* data(BufferId id) { return arena_.get() + buffer(id).offset; }
  const std::byte* data(BufferId id) const { return arena_.get() + buffer(id).offset; }
  const RankCounters& counters() const { return counters_; }

 private:
  struct Prepared {
    Kernel kernel = nullptr;
    const OpDef* op = nullptr;
    std::vector<TensorView> in, out;
    Ring ring;
    std::vector<Strided> blocks;  // of the ring's members
    Strided own;                  // one's own block
    Box box;                      // of an input
    std::vector<int64_t> dims;    // of an input, global
  };

  const Buffer& buffer(BufferId id) const { return program_.buffer(id); }
  TensorView view(BufferId id);
  Prepared prepare(const Action& a);
  void run(const Action& a, Prepared& p, const Batch& batch);
  void run_input(const Action& a, const Prepared& p, const Batch& batch);
  void fill(BufferId id, double value);
  void poison(BufferId id);
  void born(BufferId id);
  void gone(BufferId id);
  void look(size_t action);

  const Programs& programs_;
  const Program& program_;
  const int rank_;
  Transport& transport_;
  const Device& device_;
  const SessionOptions options_;
  std::unique_ptr<std::byte, void (*)(std::byte*)> arena_;  // also when the constructor throws
  std::vector<Prepared> prepared_;
  int64_t live_bytes_ = 0;
  RankCounters counters_;
  Watch watch_;
  ResultDigests digests_;
  std::vector<ActionTime> times_;
};

// The channels that a set of programs uses, with their largest messages.
ChannelPlan plan_channels(const Programs& programs);

}  // namespace plait
