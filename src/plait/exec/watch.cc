#include "plait/exec/watch.h"

#include <cmath>
#include <map>

#include "plait/base/half.h"
#include "plait/program/verify.h"

namespace plait {

namespace {

bool may_be_minus_infinity(const Placement& placement) {
  for (const Pending& p : placement.pending)
    if (p.reduce != Reduce::sum) return true;
  return false;
}

// The place in the whole tensor of element `i` of a shard.
std::vector<int64_t> global_index(const Box& box, int64_t i) {
  std::vector<int64_t> index(box.size.size());
  for (size_t d = box.size.size(); d-- > 0;) {
    index[d] = box.begin[d] + i % box.size[d];
    i /= box.size[d];
  }
  return index;
}

// The coordinates along axes over which the tensor is not replicated: ranks that share them hold
// the same values.
std::vector<int> holders(const Mesh& mesh, const Placement& placement, int rank) {
  std::vector<int> key = {mesh.pipeline_coordinate(rank)};
  for (const Axis& a : mesh.axes())
    if (a.name != mesh.pipeline_axis() && !placement.is_replicated(a.name))
      key.push_back(mesh.coordinate(rank, a.name));
  return key;
}

}  // namespace

std::optional<NotFinite::Where> find_not_finite(const Programs& programs, int rank, const Buffer& b,
                                                const std::byte* data) {
  if (!info(b.type.dtype).is_float) return {};
  const bool minus_infinity = may_be_minus_infinity(b.placement);
  return dispatch_computed(b.type.dtype, [&]<class T>() -> std::optional<NotFinite::Where> {
    const T* values = reinterpret_cast<const T*>(data);
    for (int64_t i = 0, n = b.local.elements(); i < n; ++i) {
      const auto value = static_cast<double>(values[i]);
      if (std::isfinite(value) || (minus_infinity && std::isinf(value) && value < 0)) continue;
      const Box box = shard(b.type, b.placement, programs.mesh, rank);
      return NotFinite::Where{rank, "", "", b.name, global_index(box, i), value};
    }
    return {};
  });
}

void throw_not_finite(NotFinite::Where where, const TensorType& type, const std::string& context) {
  const std::string what = fmt::format("{}: '{}' is {} at [{}] of {}", context, where.tensor,
                                       where.value, fmt::join(where.index, ", "), to_string(type));
  throw NotFinite(what, std::move(where));
}

std::vector<BufferId> states_read(const Program& program) {
  enum class First : uint8_t { none, read, written };
  std::vector<First> first(program.buffers.size(), First::none);
  auto see = [&](BufferId b, First how) {
    First& f = first[static_cast<size_t>(b)];
    if (f == First::none) f = how;
  };
  for (const Action& a : program.actions) {
    for (BufferId b : a.in) see(b, First::read);
    for (BufferId b : a.out) see(b, First::written);
  }
  std::vector<BufferId> states;
  for (size_t b = 0; b < first.size(); ++b)
    if (program.buffers[b].state && first[b] == First::read)
      states.push_back(static_cast<BufferId>(b));
  return states;
}

namespace {

// The actions that make something: not those that take and give memory, of which ranks with smaller
// shards may need fewer.
std::vector<size_t> making(const Program& program) {
  std::vector<size_t> list;
  for (size_t i = 0; i < program.actions.size(); ++i)
    if (const ActionKind kind = program.actions[i].kind;
        kind != ActionKind::alloc && kind != ActionKind::free)
      list.push_back(i);
  return list;
}

}  // namespace

void compare_replicas(const Programs& programs, const std::vector<ResultDigests>& ranks) {
  size_t most = 0;
  std::vector<std::vector<size_t>> actions;
  for (const Program& p : programs.ranks) {
    actions.push_back(making(p));
    most = std::max(most, actions.back().size());
  }
  // Ranks of one pipeline rank make the same things, so an action's replicas stand at one place.
  for (size_t i = 0; i < most; ++i) {
    std::map<std::pair<size_t, std::vector<int>>, int> seen;  // (result, holders) -> first rank
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (i >= actions[r].size()) continue;
      const size_t at = actions[r][i];
      if (at >= ranks[r].size()) continue;
      const Action& a = programs.ranks[r].actions[at];
      for (size_t k = 0; k < ranks[r][at].size(); ++k) {
        const Buffer& b = programs.ranks[r].buffer(a.out[k]);
        const int rank = static_cast<int>(r);
        const auto [it, fresh] =
            seen.emplace(std::pair(k, holders(programs.mesh, b.placement, rank)), rank);
        if (fresh) continue;
        const auto first = static_cast<size_t>(it->second);
        const std::vector<uint64_t>& other = ranks[first][actions[first][i]];
        if (k < other.size() && other[k] == ranks[r][at][k]) continue;
        fail("{}: '{}' differs in bits from that of rank {}, which holds the same part",
             describe(programs, rank, at), b.name, it->second);
      }
    }
  }
}

}  // namespace plait
