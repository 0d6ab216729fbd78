#include "plait/program/meaning.h"

#include <cstring>

#include "plait/base/digest.h"
#include "plait/ir/fused.h"
#include "plait/program/verify.h"

namespace plait {

namespace {

size_t index(int32_t id) { return static_cast<size_t>(id); }

uint64_t mix(const std::vector<uint64_t>& parts) {
  return digest({reinterpret_cast<const char*>(parts.data()), parts.size() * sizeof(uint64_t)});
}

uint64_t bits(double value) {
  uint64_t b = 0;
  std::memcpy(&b, &value, sizeof b);
  return b;
}

// What the results of a call mean. A fused op means what it expands to.
std::vector<uint64_t> op_meanings(const OpDef& op, const Attrs& attrs,
                                  const std::vector<uint64_t>& in, size_t results) {
  if (op.expansion != nullptr) {
    const Expansion& e = *op.expansion;
    std::vector<uint64_t> values(e.names.size());
    std::copy(in.begin(), in.end(), values.begin());
    for (const ExpansionNode& node : e.nodes) {
      std::vector<uint64_t> operands;
      for (const size_t v : node.in) operands.push_back(values[v]);
      const auto out = op_meanings(node.op(), node_attrs(node, attrs), operands, node.out.size());
      for (size_t i = 0; i < out.size(); ++i) values[node.out[i]] = out[i];
    }
    std::vector<uint64_t> out;
    for (const size_t v : e.results) out.push_back(values[v]);
    return out;
  }
  if (!op.terms.empty()) {
    uint64_t sum = 0;
    for (size_t i = 0; i < in.size(); ++i) sum += op.terms[i] > 0 ? in[i] : -in[i];
    return {sum};
  }
  std::vector<uint64_t> parts = {digest(op.name)};
  for (const auto& [key, value] : attrs) {
    if (key == kWide) continue;  // how a result is rounded, not what it is
    parts.push_back(digest(key));
    if (!value.is_list()) {
      parts.push_back(bits(value.number()));
      continue;
    }
    parts.push_back(digest("list") + value.list().size());
    for (const double v : value.list()) parts.push_back(bits(v));
  }
  parts.insert(parts.end(), in.begin(), in.end());
  parts.push_back(0);
  std::vector<uint64_t> out;
  for (size_t i = 0; i < results; ++i) {
    ++parts.back();  // which result
    out.push_back(mix(parts));
  }
  return out;
}

}  // namespace

MeaningTracker::MeaningTracker(const Programs& programs) : programs_(programs) {
  for (const Program& p : programs.ranks) {
    held_.emplace_back(p.buffers.size());
    for (size_t b = 0; b < p.buffers.size(); ++b)
      if (p.buffers[b].state)
        held_.back()[b].meaning = mix({digest("state"), digest(p.buffers[b].name)});
  }
}

const Action& MeaningTracker::action(int rank, size_t at) const {
  return programs_.ranks[index(rank)].actions[at];
}

uint64_t MeaningTracker::get(int rank, BufferId b) const {
  return held_[index(rank)][index(b)].meaning;
}

void MeaningTracker::set(int rank, BufferId b, uint64_t meaning, size_t writer) {
  held_[index(rank)][index(b)] = {meaning, writer, true};
}

void MeaningTracker::local(int rank, size_t at) {
  const Action& a = action(rank, at);
  switch (a.kind) {
    case ActionKind::fill:
      set(rank, a.out[0], a.value == 0 ? 0 : mix({digest("fill"), bits(a.value)}), at);
      return;
    case ActionKind::input:
      set(rank, a.out[0],
          mix({digest("input"), digest(a.name), static_cast<uint64_t>(a.microbatch)}), at);
      return;
    case ActionKind::slice:
    case ActionKind::join:
    case ActionKind::copy:
      set(rank, a.out[0], get(rank, a.in[0]), at);
      return;
    case ActionKind::op: {
      std::vector<uint64_t> in;
      for (BufferId b : a.in) in.push_back(get(rank, b));
      const std::vector<uint64_t> out = op_meanings(find_op(a.name), a.attrs, in, a.out.size());
      for (size_t i = 0; i < out.size(); ++i) set(rank, a.out[i], out[i], at);
      return;
    }
    default:
      return;
  }
}

uint64_t MeaningTracker::sent(int rank, size_t at) const {
  return get(rank, action(rank, at).in[0]);
}

void MeaningTracker::received(int rank, size_t at, uint64_t meaning) {
  set(rank, action(rank, at).out[0], meaning, at);
}

void MeaningTracker::collective(const std::vector<int>& group, const std::vector<size_t>& at) {
  const Action& first = action(group[0], at[0]);
  const bool terms = first.comm.axis == programs_.mesh.pipeline_axis();
  uint64_t result = terms ? 0 : get(group[0], first.in[0]);
  for (size_t i = 0; i < group.size(); ++i) {
    const uint64_t mine = get(group[i], action(group[i], at[i]).in[0]);
    // Pipeline ranks bring different terms of a sum; along every other axis it is one tensor.
    if (terms)
      result += mine;
    else if (mine != result)
      fail("{} and {} bring different tensors: b{} of one was not made as b{} of the other was",
           describe(programs_, group[0], at[0]), describe(programs_, group[i], at[i]), first.in[0],
           action(group[i], at[i]).in[0]);
  }
  for (size_t i = 0; i < group.size(); ++i)
    set(group[i], action(group[i], at[i]).out[0], result, at[i]);
}

Meaning MeaningTracker::finish() const {
  struct Found {
    int rank;
    BufferId buffer;
  };
  std::map<std::string, Found> found;
  auto writer = [&](const Found& f) {
    const Held& h = held_[index(f.rank)][index(f.buffer)];
    return h.written ? describe(programs_, f.rank, h.writer)
                     : fmt::format("nothing on rank {}", f.rank);
  };
  Meaning meaning;
  for (size_t r = 0; r < programs_.ranks.size(); ++r)
    for (size_t b = 0; b < programs_.ranks[r].buffers.size(); ++b) {
      const Buffer& buffer = programs_.ranks[r].buffers[b];
      if (!buffer.state) continue;
      const Found here{static_cast<int>(r), static_cast<BufferId>(b)};
      const auto [it, fresh] = found.emplace(buffer.name, here);
      const uint64_t mine = held_[r][b].meaning;
      if (fresh)
        meaning[buffer.name] = mine;
      else if (meaning[buffer.name] != mine)
        fail("state '{}' ends up different on ranks {} and {}: written by {} and by {}",
             buffer.name, it->second.rank, r, writer(it->second), writer(here));
    }
  if (programs_.meaning.empty()) return meaning;
  for (const auto& [name, expected] : programs_.meaning) {
    const auto it = meaning.find(name);
    if (it == meaning.end()) fail("no rank holds the state '{}'", name);
    if (it->second != expected)
      fail(
          "state '{}' does not end up with what the model computes on one rank; last written by {}",
          name, writer(found.at(name)));
  }
  for (const auto& [name, value] : meaning)
    if (!programs_.meaning.contains(name)) fail("state '{}' is none of the model's", name);
  return meaning;
}

}  // namespace plait
