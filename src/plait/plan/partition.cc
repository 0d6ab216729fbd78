#include "plait/plan/partition.h"

#include <algorithm>

#include "plait/ir/fused.h"

namespace plait {

namespace {

struct Signature {
  std::vector<Placement> operands, results;
};

bool is_float(const TensorType& type) { return info(type.dtype).is_float; }

// How a factor is split: axes, and shard sizes that count elements of the extent `of`.
struct FactorSplit {
  DimSplit split;
  Extent of;
};
using Splits = std::map<char, FactorSplit>;

std::string named(const Extent& e) {
  return e.name.empty() ? "an unnamed extent" : "'" + e.name + "'";
}

// Extents that share a proportional factor are cut at the same shares of their units: query heads
// with their key/value heads. Even dealing does that if they have equally many units, or if all
// of them divide.
void check_even(const OpDef& op, const Extent& e, const DimSplit& split, const Mesh& mesh) {
  int64_t ways = 1;
  std::string axes;
  for (const std::string& axis : split.axes) {
    ways *= mesh.size(axis);
    axes += fmt::format("{}{}={}", axes.empty() ? "" : " ", axis, mesh.size(axis));
  }
  if (e.units() % ways == 0) return;
  std::vector<int64_t> fits;
  for (int64_t n = 1; n <= e.units(); ++n)
    if (e.units() % n == 0) fits.push_back(n);
  fail(
      "op '{}': {} heads of {} ({} elements in units of {}) over {}; needs a divisor of {}: {} "
      "would fit",
      op.name, e.units(), named(e), e.size, e.unit, axes, e.units(), fmt::join(fits, ", "));
}

// The split of one dimension that carries a proportional factor. Throws where units would be cut.
DimSplit proportional(const OpDef& op, const FactorSplit& factor, const Extent& e,
                      const Mesh& mesh) {
  DimSplit split = factor.split;
  const Extent& of = factor.of;
  if (split.sizes.empty() && of.units() != e.units()) {
    check_even(op, of, split, mesh);
    check_even(op, e, split, mesh);
  }
  for (int64_t& size : split.sizes) {
    const int64_t share = checked_mul(size / of.unit, e.units());
    if (share % of.units() != 0)
      fail("op '{}': shard size {} of {} {} takes {} of {} units of {}, not whole ones", op.name,
           size, of.size, named(of), fmt::format("{}/{}", share, of.units()), e.units(), named(e));
    size = share / of.units() * e.unit;
  }
  return split;
}

// The signature in which every factor is split as `splits` says and the axes in `additive` stay
// pending sums throughout. Throws for a proportional factor that would be cut differently.
Signature make_signature(const OpDef& op, const Rule& rule, const std::vector<TensorType>& types,
                         const std::vector<TensorType>& results, const Splits& splits,
                         const std::vector<Pending>& additive, const Mesh& mesh) {
  Signature s;
  for (size_t i = 0; i < rule.in.size(); ++i) {
    Placement p = replicated(rule.in[i].size());
    for (size_t d = 0; d < rule.in[i].size(); ++d) {
      const Factor& f = rule.in[i][d];
      const auto it = splits.find(f.letter);
      if (it == splits.end()) continue;
      p.dims[d] =
          f.proportional ? proportional(op, it->second, types[i].dims[d], mesh) : it->second.split;
    }
    if (is_float(types[i])) p.pending = additive;
    s.operands.push_back(std::move(p));
  }
  for (size_t i = 0; i < rule.out.size(); ++i) {
    const std::vector<Factor>& result = rule.out[i];
    Placement p = replicated(result.size());
    for (size_t d = 0; d < result.size(); ++d)
      if (const auto it = splits.find(result[d].letter); it != splits.end())
        p.dims[d] = result[d].proportional
                        ? proportional(op, it->second, results.at(i).dims[d], mesh)
                        : it->second.split;
    for (const auto& [letter, reduce] : rule.contracted)
      if (const auto it = splits.find(letter); it != splits.end() && !carries(result, letter))
        for (const std::string& axis : it->second.split.axes) p.pending.push_back({axis, reduce});
    p.pending.insert(p.pending.end(), additive.begin(), additive.end());
    sort_pending(p, mesh);
    s.results.push_back(std::move(p));
  }
  return s;
}

// What may happen along one axis at one node: nothing (letter 0), a factor is split, or the
// operands stay pending ('+').
std::vector<char> options_along(const std::string& axis, const OpDef& op, const Rule& rule,
                                const std::vector<TensorType>& types,
                                const std::vector<const Placement*>& operands) {
  std::vector<char> options;
  bool all_pending = op.additive;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t d = 0; d < rule.in[i].size(); ++d) {
      const Factor& f = rule.in[i][d];
      const auto& axes = operands[i]->dims[d].axes;
      if (!f.whole && std::find(axes.begin(), axes.end(), axis) != axes.end() &&
          std::find(options.begin(), options.end(), f.letter) == options.end())
        options.push_back(f.letter);
    }
    if (!is_float(types[i])) continue;
    const auto& pending = operands[i]->pending;
    all_pending = all_pending && std::find(pending.begin(), pending.end(),
                                           Pending{axis, Reduce::sum}) != pending.end();
  }
  if (all_pending) options.push_back('+');
  options.push_back(0);
  return options;
}

// The axes chosen for one factor, in the order in which an operand has them already if one does.
FactorSplit ordered_split(char letter, const std::set<std::string>& axes, const Rule& rule,
                          const std::vector<TensorType>& types,
                          const std::vector<const Placement*>& operands, const Mesh& mesh) {
  FactorSplit in_mesh_order;
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t d = 0; d < rule.in[i].size(); ++d) {
      if (rule.in[i][d].letter != letter) continue;
      const DimSplit& have = operands[i]->dims[d];
      if (std::set<std::string>(have.axes.begin(), have.axes.end()) == axes)
        return {have, types[i].dims[d]};
      in_mesh_order.of = types[i].dims[d];
    }
  for (const Axis& a : mesh.axes())
    if (axes.contains(a.name)) in_mesh_order.split.axes.push_back(a.name);
  return in_mesh_order;
}

class Partitioner {
 public:
  explicit Partitioner(const PartitionRequest& request)
      : request_(request), graph_(*request.graph), mesh_(*request.mesh) {}
  PartGraph run();

 private:
  static size_t index(ValueId id) { return static_cast<size_t>(id); }
  const Placement& placement(ValueId v) const { return part_.placements[index(v)]; }
  void assign(const std::vector<ValueId>& ids, const std::vector<Placement>& placements,
              const char* what);
  void add_signatures(const Node& node, const OpDef& op, const std::vector<TensorType>& types,
                      const Rule& rule, std::vector<Signature>& all) const;
  double conversion_bytes(ValueId v, const Placement& target) const;
  ValueId convert(ValueId v, const Placement& target, Phase phase, const std::string& why);
  void place_node(const Node& node);
  void finish(std::vector<ValueId>& ids, const std::vector<ResultPlacement>& wanted, Phase phase);

  const PartitionRequest& request_;
  const Graph& graph_;
  const Mesh& mesh_;
  PartGraph part_;
  std::map<std::pair<ValueId, std::string>, ValueId> converted_;
};

void Partitioner::assign(const std::vector<ValueId>& ids, const std::vector<Placement>& placements,
                         const char* what) {
  PLAIT_CHECK(ids.size() == placements.size(), "block '{}': {} placements for {} {}", graph_.name,
              placements.size(), ids.size(), what);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kNone) continue;
    const Value& v = graph_.values[index(ids[i])];
    check_placement(fmt::format("block '{}' {} '{}'", graph_.name, what, v.name), v.type,
                    placements[i], mesh_);
    part_.placements[index(ids[i])] = placements[i];
  }
}

// Every way to split the node along the axes over which its operands are not whole, by one rule.
void Partitioner::add_signatures(const Node& node, const OpDef& op,
                                 const std::vector<TensorType>& types, const Rule& rule,
                                 std::vector<Signature>& all) const {
  std::vector<TensorType> results;
  for (ValueId v : node.out) results.push_back(graph_.type(v));
  std::vector<const Placement*> operands;
  for (ValueId v : node.in) operands.push_back(&placement(v));
  std::vector<std::pair<std::string, std::vector<char>>> axes;
  for (const Axis& a : mesh_.axes()) {
    const bool idle = std::all_of(operands.begin(), operands.end(),
                                  [&](const Placement* p) { return p->is_replicated(a.name); });
    if (!idle) axes.emplace_back(a.name, options_along(a.name, op, rule, types, operands));
  }
  std::vector<size_t> choice(axes.size(), 0);
  for (;;) {
    std::map<char, std::set<std::string>> chosen;
    std::vector<Pending> additive;
    for (size_t i = 0; i < axes.size(); ++i) {
      const char option = axes[i].second[choice[i]];
      if (option == '+')
        additive.push_back({axes[i].first, Reduce::sum});
      else if (option != 0)
        chosen[option].insert(axes[i].first);
    }
    Splits splits;
    for (const auto& [letter, names] : chosen)
      splits[letter] = ordered_split(letter, names, rule, types, operands, mesh_);
    try {
      all.push_back(make_signature(op, rule, types, results, splits, additive, mesh_));
    } catch (const Error&) {
      // Heads that do not divide: another rule, or gathering, is legal.
    }
    size_t i = 0;
    while (i < axes.size() && ++choice[i] == axes[i].second.size()) choice[i++] = 0;
    if (i == axes.size()) return;
  }
}

double Partitioner::conversion_bytes(ValueId v, const Placement& target) const {
  double bytes = 0;
  Placement now = placement(v);
  for (const Comm& step : reshard_steps(now, target)) {
    bytes += step_bytes(graph_.type(v), now, step, mesh_);
    now = after(now, step, target.dims.empty() ? DimSplit{} : target.dims[step.dim]);
  }
  return bytes;
}

ValueId Partitioner::convert(ValueId v, const Placement& target, Phase phase,
                             const std::string& why) {
  ValueId current = v;
  for (const Comm& step : reshard_steps(placement(v), target)) {
    Placement next =
        after(placement(current), step, target.dims.empty() ? DimSplit{} : target.dims[step.dim]);
    const bool again = request_.forget_forward && phase != Phase::F;
    const auto key = std::pair(current, to_string(next) + (again ? " again" : ""));
    if (const auto it = converted_.find(key); it != converted_.end()) {
      current = it->second;
      continue;
    }
    const auto id = static_cast<ValueId>(part_.values.size());
    const Value source = part_.values[index(current)];
    part_.values.push_back({source.name + "'", source.type});
    part_.placements.push_back(next);
    PartNode node;
    node.op = to_string(step.kind);
    node.in = {current};
    node.out = {id};
    node.phase = phase;
    node.comm = step;
    node.why = why;
    part_.nodes.push_back(std::move(node));
    converted_[key] = id;
    current = id;
  }
  return current;
}

void Partitioner::place_node(const Node& node) {
  const OpDef& op = find_op(node.op);
  std::vector<TensorType> types;
  for (ValueId v : node.in) types.push_back(graph_.type(v));
  std::vector<Signature> all;
  for (const Rule& rule : parse_rules(op.rule(node.attrs, types)))
    add_signatures(node, op, types, rule, all);
  const Signature* best = nullptr;
  std::pair<double, int64_t> best_cost;
  for (const Signature& s : all) {
    double bytes = 0;
    std::vector<TensorType> local;
    for (size_t i = 0; i < node.in.size(); ++i) {
      bytes += conversion_bytes(node.in[i], s.operands[i]);
      local.push_back(local_type(types[i], s.operands[i], mesh_, 0));
    }
    const std::pair cost(bytes, flops_of(op, node.attrs, local));
    if (best == nullptr || cost < best_cost) {
      best = &s;
      best_cost = cost;
    }
  }
  PartNode placed;
  static_cast<Node&>(placed) = node;
  for (size_t i = 0; i < node.in.size(); ++i)
    placed.in[i] = convert(node.in[i], best->operands[i], node.phase,
                           fmt::format("operand {} of {}", i, node.op));
  for (size_t i = 0; i < node.out.size(); ++i)
    part_.placements[index(node.out[i])] = best->results[i];
  part_.nodes.push_back(std::move(placed));
}

void Partitioner::finish(std::vector<ValueId>& ids, const std::vector<ResultPlacement>& wanted,
                         Phase phase) {
  PLAIT_CHECK(ids.size() == wanted.size(), "block '{}': {} placements for {} results", graph_.name,
              wanted.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kNone) continue;
    Placement target = wanted[i].placement;
    for (const Pending& p : placement(ids[i]).pending)
      if (p.reduce == Reduce::sum && wanted[i].may_stay_pending.contains(p.axis))
        target.pending.push_back(p);
    ids[i] = convert(ids[i], target, phase, "block result");
  }
}

PartGraph Partitioner::run() {
  part_.name = graph_.name;
  part_.values = graph_.values;
  part_.placements.resize(graph_.values.size());
  part_.inputs = graph_.inputs;
  part_.params = graph_.params;
  part_.outputs = graph_.outputs;
  part_.d_outputs = graph_.d_outputs;
  part_.d_inputs = graph_.d_inputs;
  part_.d_params = graph_.d_params;
  assign(graph_.inputs, request_.inputs, "input");
  assign(graph_.params, request_.params, "parameter");
  assign(graph_.d_outputs, request_.d_outputs, "output gradient");
  // Results of an update graph (all nodes U) are finished after it, those of a block before B.
  const Phase first = graph_.nodes.empty() ? Phase::F : graph_.nodes.front().phase;
  bool outputs_done = false, d_inputs_done = false;
  for (const Node& node : graph_.nodes) {
    if (node.phase != first && !outputs_done) {
      finish(part_.outputs, request_.outputs, first);
      outputs_done = true;
    }
    // Before W, so that nothing of B comes from what W communicated.
    if (node.phase == Phase::W && !d_inputs_done) {
      finish(part_.d_inputs, request_.d_inputs, Phase::B);
      d_inputs_done = true;
    }
    try {
      place_node(node);
    } catch (const Error& e) {
      fail("block '{}': {}", graph_.name, e.what());
    }
  }
  if (!outputs_done) finish(part_.outputs, request_.outputs, first);
  if (!d_inputs_done) finish(part_.d_inputs, request_.d_inputs, Phase::B);
  finish(part_.d_params, request_.d_params, Phase::W);
  std::stable_sort(part_.nodes.begin(), part_.nodes.end(),
                   [](const PartNode& a, const PartNode& b) { return a.phase < b.phase; });
  return std::move(part_);
}

}  // namespace

PartGraph partition(const PartitionRequest& request) { return Partitioner(request).run(); }

namespace {

std::vector<Placement> placements_by(const Rule& rule, const OpDef& op, const Attrs& attrs,
                                     const std::vector<TensorType>& types,
                                     const std::vector<Placement>& operands, const Mesh& mesh) {
  Splits splits;
  std::vector<Pending> additive;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t d = 0; d < rule.in[i].size(); ++d) {
      const DimSplit& split = operands[i].dims[d];
      if (split.axes.empty()) continue;
      if (rule.in[i][d].whole)
        fail("op '{}' operand {}: dimension {} is split ({}); it needs it whole", op.name, i, d,
             to_string(operands[i]));
      splits[rule.in[i][d].letter] = {split, types[i].dims[d]};
    }
    if (op.additive && is_float(types[i])) additive = operands[i].pending;
  }
  for (const Pending& p : additive)
    if (p.reduce != Reduce::sum) additive.clear();
  Signature s =
      make_signature(op, rule, types, infer_types(op, attrs, types), splits, additive, mesh);
  for (size_t i = 0; i < operands.size(); ++i) {
    Placement found = operands[i];
    found.stages.clear();
    if (found != s.operands[i])
      fail("op '{}' operand {}: lies as {}, needed {}", op.name, i, to_string(found),
           to_string(s.operands[i]));
  }
  return s.results;
}

// Of a fused op: node by node.
std::vector<Placement> placements_in_expansion(const OpDef& op, const Attrs& attrs,
                                               const std::vector<TensorType>& types,
                                               const std::vector<Placement>& operands,
                                               const Mesh& mesh) {
  const Graph g = expand(op, attrs, types);
  std::vector<Placement> at(g.values.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    at[static_cast<size_t>(g.inputs[i])] = operands[i];
    at[static_cast<size_t>(g.inputs[i])].stages.clear();
  }
  for (const Node& node : g.nodes) {
    std::vector<TensorType> in;
    std::vector<Placement> placed;
    for (const ValueId v : node.in) {
      in.push_back(g.type(v));
      placed.push_back(at[static_cast<size_t>(v)]);
    }
    const auto out = result_placements(find_op(node.op), node.attrs, in, placed, mesh);
    for (size_t i = 0; i < out.size(); ++i) at[static_cast<size_t>(node.out[i])] = out[i];
  }
  std::vector<Placement> results;
  for (const ValueId v : g.outputs) results.push_back(at[static_cast<size_t>(v)]);
  return results;
}

}  // namespace

std::vector<Placement> result_placements(const OpDef& op, const Attrs& attrs,
                                         const std::vector<TensorType>& types,
                                         const std::vector<Placement>& operands, const Mesh& mesh) {
  if (op.expansion != nullptr) return placements_in_expansion(op, attrs, types, operands, mesh);
  std::string first;
  for (const Rule& rule : parse_rules(op.rule(attrs, types))) try {
      return placements_by(rule, op, attrs, types, operands, mesh);
    } catch (const Error& e) {
      if (first.empty()) first = e.what();
    }
  fail("{}", first);
}

}  // namespace plait
