// Program: what one rank does in one step, as a list of actions over named buffers. All ranks'
// programs together are what is costed, verified, printed and run; nothing else is.
//
// A buffer is one tensor at one placement, written once, except by ops that state that they work
// in place. `state` buffers outlive the step; the others are allocated and freed by actions, at
// offsets of the rank's arena that are fixed when the program is made. Collectives name their
// ranks. `all_reduce` and `join` *take* their operand: the result is the same storage with
// another meaning, and the operand is gone. `reduce_scatter` leaves its operand unreadable.
//
// The text form prints deterministically and parses back:
//
//   programs "tiny" mesh "dp=2 tp=2" pipeline "" slots 2 threads 1
//   means "param/embed.weight" "1b2ff5d1c4a6a77e"
//   rank 0 {
//     buffer b0 "param/embed.weight" f32[V=67, D=32] [tp, -] at 0 state
//     buffer b1 "tokens" i32[T=192/24] [dp] at 17152
//     unit "F s0 m0 embed"
//     alloc b1
//     input b1 "tokens" 0
//     op embedding b2 = b0 b1
//     all_reduce b3 = b2 sum over tp group 0 1
//     send b3 to 4
//     free b1
//   }
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plait/plan/placement.h"

namespace plait {

using BufferId = int32_t;

struct Buffer {
  std::string name;
  TensorType type;  // global
  Placement placement;
  TensorType local;    // this rank's part: derived
  int64_t bytes = 0;   // of it: derived
  int64_t offset = 0;  // in the arena
  bool state = false;
};

enum class ActionKind : uint8_t {
  alloc,           // out
  free,            // in
  fill,            // out = value
  input,           // out = the driver's tensor `name` for micro-batch `microbatch`
  op,              // out = name(in); workspace
  send,            // in -> peer
  recv,            // out <- peer
  all_reduce,      // out = in reduced over group; takes in
  all_gather,      // out = in gathered along comm.dim
  reduce_scatter,  // out = this rank's part, along comm.dim, of in reduced; in is unreadable then
  slice,           // out = this rank's part of in along comm.dim; no bytes move
  join,            // out = in seen as one term of a sum over the pipeline axis; takes in
  copy,            // out = in
};
const char* to_string(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::op;
  std::string name;  // op or input
  Attrs attrs;       // op
  std::vector<BufferId> in, out;
  BufferId workspace = kNone;
  int peer = -1;
  int64_t microbatch = 0;
  double value = 0;  // fill
  Comm comm{};       // all_reduce, all_gather, reduce_scatter, slice; join: axis
  std::vector<int> group;
  int32_t unit = 0;  // index into Program::units
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Action> actions;
  std::vector<std::string> units;  // what the actions belong to: "F s0 m2 layers.3"
  int64_t arena_bytes = 0;

  const Buffer& buffer(BufferId id) const { return buffers.at(static_cast<size_t>(id)); }
  BufferId find_state(std::string_view name) const;  // kNone when there is none
};

// What states hold after a step: by name, a digest of the expression over inputs and states that
// was computed, with communication left out and sums in any order. Two sets of programs with equal
// meanings compute the same thing, wherever their tensors lie.
using Meaning = std::map<std::string, uint64_t>;

// Every rank's program, and what they share.
struct Programs {
  std::string model;
  Mesh mesh;
  int channel_slots = 2;  // messages that fit between one rank and another before a send waits
  int threads = 1;        // compute threads of each rank, inside its kernels
  Meaning meaning;        // that of the model on one rank; the verifier holds the ranks to it
  std::vector<Program> ranks;
};

// Fills local and bytes of every buffer from type and placement.
void derive_buffers(Program& program, const Mesh& mesh, int rank);

bool takes_operand(ActionKind kind);
bool is_collective(ActionKind kind);

std::string print_action(const Program& program, const Action& action);
std::string print_programs(const Programs& programs);
Programs parse_programs(std::string_view text, const std::string& source);
uint64_t digest(const Programs& programs);  // of the printed text

// Bytes that this rank sends in one action under the named algorithm (ring): the prediction that
// the transport's counters are held against.
int64_t sent_bytes(const Programs& programs, int rank, const Action& action);

}  // namespace plait
