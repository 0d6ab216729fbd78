#include "plait/program/program.h"

#include <algorithm>

namespace plait {

BufferId Program::find_state(std::string_view name) const {
  for (size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].state && buffers[i].name == name) return static_cast<BufferId>(i);
  return kNone;
}

void derive_buffers(Program& program, const Mesh& mesh, int rank) {
  for (Buffer& b : program.buffers) {
    b.local = local_type(b.type, b.placement, mesh, rank);
    b.bytes = b.local.bytes();
  }
}

bool takes_operand(ActionKind kind) {
  return kind == ActionKind::all_reduce || kind == ActionKind::join;
}

bool is_collective(ActionKind kind) {
  return kind == ActionKind::all_reduce || kind == ActionKind::all_gather ||
         kind == ActionKind::reduce_scatter;
}

namespace {

// Elements of ring chunk `i` when `elements` are dealt out over `n`.
int64_t chunk(int64_t elements, int64_t n, int64_t i) {
  return elements / n + (i < elements % n ? 1 : 0);
}

}  // namespace

int64_t sent_bytes(const Programs& programs, int rank, const Action& a) {
  const Program& program = programs.ranks.at(static_cast<size_t>(rank));
  if (a.kind == ActionKind::send) return program.buffer(a.in[0]).bytes;
  if (!is_collective(a.kind)) return 0;
  const auto n = static_cast<int64_t>(a.group.size());
  const auto me = std::find(a.group.begin(), a.group.end(), rank) - a.group.begin();
  PLAIT_CHECK(me < n, "rank {} is not in the group of its own collective", rank);
  if (n == 1) return 0;
  const Buffer& in = program.buffer(a.in[0]);
  if (a.kind == ActionKind::all_reduce) {
    // Ring: all chunks but one while reducing, all but one while gathering.
    const int64_t elements = in.local.elements();
    const int64_t sent =
        2 * elements - chunk(elements, n, (me + 1) % n) - chunk(elements, n, (me + 2) % n);
    return dtype_bytes(in.type.dtype, sent);
  }
  // Ring: every rank's part but the one of the next rank (all_gather) or of oneself
  // (reduce_scatter).
  const Buffer& whole = a.kind == ActionKind::all_gather ? program.buffer(a.out[0]) : in;
  const Buffer& part = a.kind == ActionKind::all_gather ? in : program.buffer(a.out[0]);
  const int spared =
      a.group[static_cast<size_t>(a.kind == ActionKind::all_gather ? (me + 1) % n : me)];
  return whole.bytes - local_type(part.type, part.placement, programs.mesh, spared).bytes();
}

}  // namespace plait
