#include "plait/plan/fuse.h"

#include <algorithm>

#include "plait/ir/fused.h"

namespace plait {

namespace {

constexpr size_t kFree = static_cast<size_t>(-1);

size_t index(ValueId id) { return static_cast<size_t>(id); }

// One way to lay a pattern over a graph.
struct Match {
  std::vector<size_t> nodes;    // of the graph, per node of the pattern; kFree: not yet
  std::vector<ValueId> values;  // of the graph, per value of the pattern; kNone: not yet
  Attrs attrs;                  // of the fused op
};

class Fuser {
 public:
  Fuser(PartGraph part, const std::vector<bool>& late_outputs)
      : part_(std::move(part)), late_outputs_(late_outputs) {}
  PartGraph run();

 private:
  void look_around();
  bool grow(const Expansion& e, Match& match) const;
  bool try_node(const Expansion& e, size_t p, size_t n, Match& match) const;
  bool bind_attrs(const ExpansionNode& p, const Attrs& found, Match& match) const;
  bool closed(const Expansion& e, const Match& match) const;
  Phase phase_of(const Expansion& e, const Match& match) const;
  bool circular(const Expansion& e, const Match& match) const;
  bool delay_readers(const std::vector<ValueId>& made, const std::vector<size_t>& inside,
                     Phase phase, std::vector<size_t>& late) const;
  bool replace(const OpDef& op, const Match& match);
  void sort();

  PartGraph part_;
  const std::vector<bool>& late_outputs_;
  std::vector<size_t> maker_;                 // per value: its node, or kFree
  std::vector<std::vector<size_t>> readers_;  // per value
  std::vector<bool> leaves_;                  // per value: does the block hand it out?
};

void Fuser::look_around() {
  maker_.assign(part_.values.size(), kFree);
  readers_.assign(part_.values.size(), {});
  leaves_.assign(part_.values.size(), false);
  for (size_t n = 0; n < part_.nodes.size(); ++n) {
    for (const ValueId v : part_.nodes[n].out) maker_[index(v)] = n;
    for (const ValueId v : part_.nodes[n].in) readers_[index(v)].push_back(n);
  }
  for (const auto* list : {&part_.outputs, &part_.d_inputs, &part_.d_params})
    for (const ValueId v : *list)
      if (v != kNone) leaves_[index(v)] = true;
}

bool Fuser::bind_attrs(const ExpansionNode& p, const Attrs& found, Match& match) const {
  for (const auto& [key, value] : p.fixed) {
    const auto it = found.find(key);
    if (it == found.end() || it->second != value) return false;
  }
  for (const auto& [key, value] : found) {
    if (p.fixed.contains(key)) continue;
    if (std::find(p.passed.begin(), p.passed.end(), key) == p.passed.end()) return false;
    const auto [it, fresh] = match.attrs.emplace(key, value);
    if (!fresh && it->second != value) return false;
  }
  return true;
}

// Lays node p of the pattern on node n of the graph, then the rest.
bool Fuser::try_node(const Expansion& e, size_t p, size_t n, Match& match) const {
  const ExpansionNode& want = e.nodes[p];
  const PartNode& have = part_.nodes[n];
  if (have.comm || have.op != want.name || have.in.size() != want.in.size()) return false;
  if (std::find(match.nodes.begin(), match.nodes.end(), n) != match.nodes.end()) return false;
  std::vector<ValueId> in = have.in;
  const bool either = in.size() == 2 && want.op().terms == std::vector<int>{1, 1};
  for (int order = 0; order < (either ? 2 : 1); ++order) {
    Match next = match;
    const auto bind = [&](size_t value, ValueId to) {
      if (next.values[value] == kNone) next.values[value] = to;
      return next.values[value] == to;
    };
    bool fits = bind_attrs(want, have.attrs, next);
    for (size_t i = 0; i < in.size() && fits; ++i) fits = bind(want.in[i], in[i]);
    for (size_t i = 0; i < have.out.size() && fits; ++i) fits = bind(want.out[i], have.out[i]);
    next.nodes[p] = n;
    if (fits && grow(e, next)) {
      match = std::move(next);
      return true;
    }
    if (either) std::swap(in[0], in[1]);
  }
  return false;
}

// Lays the nodes that are left, each beside one that is laid already: the maker of a value, a
// reader of one, or if there is none such, a reader of an operand.
bool Fuser::grow(const Expansion& e, Match& match) const {
  if (std::find(match.nodes.begin(), match.nodes.end(), kFree) == match.nodes.end())
    return closed(e, match);
  for (const bool by_operands : {false, true})
    for (size_t p = 0; p < e.nodes.size(); ++p) {
      if (match.nodes[p] != kFree) continue;
      for (const size_t v : e.nodes[p].out) {
        if (match.values[v] == kNone) continue;
        const size_t maker = maker_[index(match.values[v])];
        return maker != kFree && try_node(e, p, maker, match);
      }
      for (const size_t v : e.nodes[p].in) {
        if (match.values[v] == kNone || (v < e.operands) != by_operands) continue;
        for (const size_t n : readers_[index(match.values[v])])
          if (try_node(e, p, n, match)) return true;
        return false;
      }
    }
  return false;
}

// Nothing inside is read outside, and operands are not made inside.
bool Fuser::closed(const Expansion& e, const Match& match) const {
  const auto inside = [&](size_t n) {
    return std::find(match.nodes.begin(), match.nodes.end(), n) != match.nodes.end();
  };
  for (size_t v = 0; v < e.names.size(); ++v) {
    const size_t value = index(match.values[v]);
    if (v < e.operands) {
      if (maker_[value] != kFree && inside(maker_[value])) return false;
      continue;
    }
    if (std::find(e.results.begin(), e.results.end(), v) != e.results.end()) continue;
    if (leaves_[value]) return false;
    for (const size_t n : readers_[value])
      if (!inside(n)) return false;
  }
  return true;
}

// The phase in which the row can run at once: where its first node stands, but not before its
// operands are made.
Phase Fuser::phase_of(const Expansion& e, const Match& match) const {
  Phase phase = Phase::U;
  for (const size_t n : match.nodes) phase = std::min(phase, part_.nodes[n].phase);
  for (size_t v = 0; v < e.operands; ++v) {
    const ValueId value = match.values[v];
    if (maker_[index(value)] != kFree)
      phase = std::max(phase, part_.nodes[maker_[index(value)]].phase);
    else if (std::find(part_.d_outputs.begin(), part_.d_outputs.end(), value) !=
             part_.d_outputs.end())
      phase = std::max(phase, Phase::B);
  }
  return phase;
}

// Does an operand depend on a result, by way of nodes outside?
bool Fuser::circular(const Expansion& e, const Match& match) const {
  std::vector<bool> seen(part_.nodes.size(), false);
  for (const size_t n : match.nodes) seen[n] = true;
  std::vector<ValueId> open;
  for (const size_t v : e.results) open.push_back(match.values[v]);
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    for (size_t i = 0; i < e.operands; ++i)
      if (match.values[i] == v) return true;
    for (const size_t n : readers_[index(v)]) {
      if (seen[n]) continue;
      seen[n] = true;
      open.insert(open.end(), part_.nodes[n].out.begin(), part_.nodes[n].out.end());
    }
  }
  return false;
}

// Readers of `made` that stand before `phase` have to wait for it; false when they cannot.
bool Fuser::delay_readers(const std::vector<ValueId>& made, const std::vector<size_t>& inside,
                          Phase phase, std::vector<size_t>& late) const {
  std::vector<ValueId> open = made;
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    for (size_t i = 0; i < part_.outputs.size(); ++i)
      if (part_.outputs[i] == v && phase > Phase::F && !late_outputs_[i]) return false;
    if (phase > Phase::B &&
        std::find(part_.d_inputs.begin(), part_.d_inputs.end(), v) != part_.d_inputs.end())
      return false;
    for (const size_t n : readers_[index(v)]) {
      if (part_.nodes[n].phase >= phase || std::count(late.begin(), late.end(), n) > 0) continue;
      if (std::count(inside.begin(), inside.end(), n) > 0) continue;
      if (part_.nodes[n].comm) return false;
      late.push_back(n);
      open.insert(open.end(), part_.nodes[n].out.begin(), part_.nodes[n].out.end());
    }
  }
  return true;
}

bool Fuser::replace(const OpDef& op, const Match& match) {
  const Expansion& e = *op.expansion;
  const Phase phase = phase_of(e, match);
  PartNode fused;
  fused.op = op.name;
  fused.attrs = match.attrs;
  fused.phase = phase;
  for (size_t v = 0; v < e.operands; ++v) fused.in.push_back(match.values[v]);
  for (const size_t v : e.results) fused.out.push_back(match.values[v]);
  std::vector<size_t> late;
  if (circular(e, match) || !delay_readers(fused.out, match.nodes, phase, late)) return false;
  for (const size_t n : late) part_.nodes[n].phase = phase;
  const size_t last = *std::max_element(match.nodes.begin(), match.nodes.end());
  part_.nodes[last] = std::move(fused);
  std::vector<PartNode> kept;
  for (size_t n = 0; n < part_.nodes.size(); ++n)
    if (n == last || std::find(match.nodes.begin(), match.nodes.end(), n) == match.nodes.end())
      kept.push_back(std::move(part_.nodes[n]));
  part_.nodes = std::move(kept);
  sort();
  look_around();
  return true;
}

// By phase, and every node behind what it reads; else in the order in which they stand.
void Fuser::sort() {
  std::stable_sort(part_.nodes.begin(), part_.nodes.end(),
                   [](const PartNode& a, const PartNode& b) { return a.phase < b.phase; });
  std::vector<bool> pending(part_.values.size(), false);
  for (const PartNode& n : part_.nodes)
    for (const ValueId v : n.out) pending[index(v)] = true;
  std::vector<PartNode> sorted;
  std::vector<bool> done(part_.nodes.size(), false);
  while (sorted.size() < part_.nodes.size()) {
    const size_t before = sorted.size();
    for (size_t n = 0; n < part_.nodes.size(); ++n) {
      PartNode& node = part_.nodes[n];
      if (done[n] ||
          std::any_of(node.in.begin(), node.in.end(), [&](ValueId v) { return pending[index(v)]; }))
        continue;
      for (const ValueId v : node.out) pending[index(v)] = false;
      done[n] = true;
      sorted.push_back(std::move(node));
      break;  // the first that can stand here
    }
    PLAIT_CHECK(sorted.size() > before, "block '{}': fusion made a cycle", part_.name);
  }
  part_.nodes = std::move(sorted);
}

PartGraph Fuser::run() {
  look_around();
  for (const OpDef& op : all_ops()) {
    if (op.expansion == nullptr) continue;
    const Expansion& e = *op.expansion;
    for (size_t n = 0; n < part_.nodes.size();) {
      Match match{std::vector<size_t>(e.nodes.size(), kFree),
                  std::vector<ValueId>(e.names.size(), kNone),
                  {}};
      const bool replaced = try_node(e, 0, n, match) && replace(op, match);
      n = replaced ? 0 : n + 1;
    }
  }
  return std::move(part_);
}

}  // namespace

PartGraph fuse(PartGraph part, const std::vector<bool>& late_outputs) {
  return Fuser(std::move(part), late_outputs).run();
}

}  // namespace plait
