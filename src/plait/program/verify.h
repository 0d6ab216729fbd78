// The verifier: proves of a set of programs, before anything runs, that
//   - every operand is written before it is read, and not after it was released or taken;
//   - every buffer that is not a state is released, and none overlaps another that is live;
//   - every op is legal for the placements of its operands, and yields the placement that its
//     result claims: a missing, doubled or misgrouped reduction is a type error here;
//   - all ranks of a collective bring the same tensor, a message arrives where the same shard is
//     expected, replicas of a state end up the same; and every state ends up with what the model
//     computes on one rank, if the programs say what that is (Programs::meaning): a forgotten or
//     doubled term, the wrong micro-batch, two swapped tensors of one type are refused here;
//   - sends and receives match one to one, in order, without tags; collectives meet the same
//     collective on every rank of their group; and no set of ranks waits for ever, with channels
//     of `channel_slots` messages.
// A program that does not verify does not run. Errors name the actions on both sides.
#pragma once

#include <string>
#include <vector>

#include "plait/program/program.h"

namespace plait {

struct RankReport {
  int64_t actions = 0;
  int64_t collectives = 0, messages = 0;  // messages: sends
  int64_t sent_bytes = 0;                 // of both, predicted
  int64_t state_bytes = 0;                // live between steps
  int64_t peak_live_bytes = 0;            // states included
  int64_t arena_bytes = 0;
  int64_t empty_inputs = 0;  // inputs of which this rank gets no element: idle, not wrong
};

struct VerifyReport {
  std::vector<RankReport> ranks;
  Meaning meaning;  // of the states after a step
};

// Throws Error at the first thing that does not hold.
VerifyReport verify(const Programs& programs);

// "rank 1 action 17 'recv b5 from 0' (b5 is 'h1 m0', in 'F s1 m0 recv')"
std::string describe(const Programs& programs, int rank, size_t action);

}  // namespace plait
