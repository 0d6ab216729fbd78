// Internal to program/: what every buffer of every rank holds, as a digest of the expression that
// made it, while the verifier runs the programs. Communication and slicing leave a meaning as it
// is; sums are added, so their order does not matter; everything else is hashed. Ranks that take
// part in one collective must bring the same tensor, replicas must agree in the end, and the
// states must mean what they mean on one rank.
#pragma once

#include "plait/program/program.h"

namespace plait {

class MeaningTracker {
 public:
  explicit MeaningTracker(const Programs& programs);
  // Everything but sends, receives and collectives.
  void local(int rank, size_t action);
  uint64_t sent(int rank, size_t action) const;
  void received(int rank, size_t action, uint64_t meaning);
  // All ranks of the group stand at this collective; `at` gives their actions.
  void collective(const std::vector<int>& group, const std::vector<size_t>& at);
  // The states' meanings. Throws when ranks disagree, or when they are not `programs.meaning`.
  Meaning finish() const;

 private:
  struct Held {
    uint64_t meaning = 0;
    size_t writer = 0;  // action
    bool written = false;
  };
  const Action& action(int rank, size_t at) const;
  uint64_t get(int rank, BufferId b) const;
  void set(int rank, BufferId b, uint64_t meaning, size_t writer);

  const Programs& programs_;
  std::vector<std::vector<Held>> held_;  // per rank and buffer
};

}  // namespace plait
