#include "plait/program/lower.h"

#include <algorithm>
#include <limits>
#include <set>
#include <thread>

#include "plait/base/glob.h"
#include "plait/plan/fuse.h"
#include "plait/program/emit.h"
#include "plait/program/verify.h"

namespace plait {

namespace {

size_t index(ValueId id) { return static_cast<size_t>(id); }

int64_t forward_flops(const Graph& block) {
  int64_t total = 0;
  for (const Node& node : block.nodes) {
    std::vector<TensorType> types;
    for (ValueId v : node.in) types.push_back(block.type(v));
    total = checked_add(total, flops_of(find_op(node.op), node.attrs, types));
  }
  return total;
}

// The contiguous division of the uses over `stages` whose largest share of FLOPs is least.
std::vector<int64_t> balanced_blocks(const std::vector<int64_t>& flops, int stages) {
  const size_t n = flops.size();
  const auto p = static_cast<size_t>(stages);
  std::vector<int64_t> prefix(n + 1, 0);
  for (size_t i = 0; i < n; ++i) prefix[i + 1] = checked_add(prefix[i], flops[i]);
  constexpr int64_t kWorst = std::numeric_limits<int64_t>::max();
  std::vector<std::vector<int64_t>> best(p + 1, std::vector<int64_t>(n + 1, kWorst));
  std::vector<std::vector<size_t>> cut(p + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t s = 1; s <= p; ++s)
    for (size_t end = s; end <= n; ++end)
      for (size_t begin = s - 1; begin < end; ++begin) {
        if (best[s - 1][begin] == kWorst) continue;
        const int64_t share = std::max(best[s - 1][begin], prefix[end] - prefix[begin]);
        if (share < best[s][end]) {
          best[s][end] = share;
          cut[s][end] = begin;
        }
      }
  std::vector<int64_t> blocks(p);
  size_t end = n;
  for (size_t s = p; s > 0; --s) {
    blocks[s - 1] = static_cast<int64_t>(end - cut[s][end]);
    end = cut[s][end];
  }
  return blocks;
}

std::vector<int> assign_stages(const Model& model, const Plan& plan) {
  const int stages = plan.mesh.pipeline_size();
  const auto uses = static_cast<int64_t>(model.uses.size());
  std::vector<int64_t> blocks = plan.blocks;
  if (stages > uses)
    fail(
        "pipeline: {} ranks on axis '{}' for the {} blocks of '{}'; every rank needs one, so {} "
        "or fewer would fit",
        stages, plan.mesh.pipeline_axis(), uses, model.name, uses);
  if (blocks.empty()) {
    std::vector<int64_t> flops;
    for (const BlockUse& use : model.uses) flops.push_back(forward_flops(model.blocks[use.block]));
    blocks = balanced_blocks(flops, stages);
  }
  int64_t sum = 0;
  for (const int64_t b : blocks) sum += b;
  if (static_cast<int>(blocks.size()) != stages || sum != uses)
    fail(
        "pipeline.blocks has {} entries with {} blocks; needs {} entries with the {} blocks of "
        "'{}'",
        blocks.size(), sum, stages, uses, model.name);
  std::vector<int> stage_of_use;
  for (size_t s = 0; s < blocks.size(); ++s) {
    if (blocks[s] < 1) fail("pipeline.blocks: pipeline rank {} has no block; needs 1 or more", s);
    stage_of_use.insert(stage_of_use.end(), static_cast<size_t>(blocks[s]), static_cast<int>(s));
  }
  return stage_of_use;
}

bool is_model_input(const Model& model, ModelValueId v) {
  return std::find(model.inputs.begin(), model.inputs.end(), v) != model.inputs.end();
}

void check_edges(const LowerContext& c) {
  std::map<ModelValueId, int> made;
  for (size_t u = 0; u < c.model.uses.size(); ++u) {
    for (ModelValueId v : c.model.uses[u].inputs) {
      if (is_model_input(c.model, v)) continue;
      const int from = made.at(v), to = c.result.stage_of_use[u];
      if (to != from && to != from + 1)
        fail(
            "value '{}' is made on pipeline rank {} and used on {}; values that skip a pipeline "
            "rank are not supported yet",
            c.model.values[index(v)].name, from, to);
    }
    for (ModelValueId v : c.model.uses[u].outputs) made[v] = c.result.stage_of_use[u];
  }
}

PartGraph partition_use(const LowerContext& c, const BlockUse& use, const Graph& graph) {
  const Mesh& mesh = c.plan.mesh;
  std::set<std::string> all_axes;
  for (const Axis& a : mesh.axes()) all_axes.insert(a.name);
  PartitionRequest r;
  r.graph = &graph;
  r.mesh = &mesh;
  r.forget_forward = c.plan.recompute == Recompute::full;
  for (size_t i = 0; i < use.inputs.size(); ++i) {
    r.inputs.push_back(place_by_letters(c.plan, c.model.values[index(use.inputs[i])].type));
    r.d_inputs.push_back({r.inputs.back(), {}});
  }
  for (size_t i = 0; i < use.params.size(); ++i) {
    r.params.push_back(c.param_placement[use.params[i]]);
    ResultPlacement gradient{r.params.back(), {}};
    for (const Pending& p : c.gradient_placement[use.params[i]].pending)
      gradient.may_stay_pending.insert(p.axis);
    r.d_params.push_back(std::move(gradient));
  }
  for (ModelValueId v : use.outputs) {
    r.d_outputs.push_back(place_by_letters(c.plan, c.model.values[index(v)].type));
    r.outputs.push_back({r.d_outputs.back(), {}});
    if (is_total(c.model, v)) r.outputs.back().may_stay_pending = all_axes;
  }
  if (!c.options.train) {
    r.d_inputs.clear();
    r.d_params.clear();
    r.d_outputs.clear();
  }
  return partition(r);
}

// The loss and its gradient are made at once where the logits are not split, so that nothing of
// them is kept or made again.
Recompute recompute_of(const LowerContext& c, const BlockUse& use) {
  const bool loss = std::count(use.outputs.begin(), use.outputs.end(), c.model.loss) > 0;
  const bool whole = !c.plan.split.contains("V");
  return c.options.fuse && loss && whole ? Recompute::none : c.plan.recompute;
}

// Every use's graph. A value needs a gradient when a trained parameter lies upstream of it; a use
// whose inputs need none yields none, and one that holds no trained parameter either is not
// differentiated at all.
void differentiate_uses(LowerContext& c) {
  std::map<std::pair<size_t, std::vector<bool>>, size_t> known;
  std::vector<bool> needs(c.model.values.size(), false);
  c.gradient_flows.assign(c.model.values.size(), false);
  for (const BlockUse& use : c.model.uses) {
    std::vector<bool> inputs, params, key;
    for (ModelValueId v : use.inputs) inputs.push_back(needs[index(v)]);
    for (size_t p : use.params) params.push_back(!c.model.params[p].frozen);
    if (c.options.train) {
      key = inputs;
      key.insert(key.end(), params.begin(), params.end());
    }
    const auto [it, fresh] = known.emplace(std::pair(use.block, key), c.graphs.size());
    c.graph_of_use.push_back(it->second);
    if (fresh) {
      const Graph& forward = c.model.blocks[use.block];
      c.graphs.push_back(
          c.options.train ? recompute(differentiate(forward, inputs, params), recompute_of(c, use))
                          : forward);
    }
    if (!c.options.train) continue;
    const Graph& g = c.graphs[it->second];
    for (size_t i = 0; i < use.outputs.size(); ++i)
      needs[index(use.outputs[i])] = g.d_outputs[i] != kNone;
    for (size_t i = 0; i < use.inputs.size(); ++i)
      if (g.d_inputs[i] != kNone) c.gradient_flows[index(use.inputs[i])] = true;
  }
}

// What identifies a partitioned block: the block, and all placements at its border.
std::string part_key(const LowerContext& c, size_t u) {
  const BlockUse& use = c.model.uses[u];
  std::string key = fmt::format("{}", c.graph_of_use[u]);
  for (size_t p : use.params)
    key += "|" + to_string(c.param_placement[p]) + to_string(c.gradient_placement[p]);
  auto add = [&](const char* kind, ModelValueId v) {
    key += kind + to_string(place_by_letters(c.plan, c.model.values[index(v)].type));
  };
  for (ModelValueId v : use.inputs) add(is_model_input(c.model, v) ? "|i" : "|v", v);
  for (ModelValueId v : use.outputs) add(is_total(c.model, v) ? "|l" : "|v", v);
  return key;
}

void partition_uses(LowerContext& c) {
  std::map<std::string, size_t> known;
  c.result.parts.clear();
  c.result.part_of_use.clear();
  for (size_t u = 0; u < c.model.uses.size(); ++u) {
    const auto [it, fresh] = known.emplace(part_key(c, u), c.result.parts.size());
    c.result.part_of_use.push_back(it->second);
    if (fresh)
      c.result.parts.push_back(partition_use(c, c.model.uses[u], c.graphs[c.graph_of_use[u]]));
  }
}

// A gradient accumulator stays pending over the axes on which every use of the parameter leaves
// it pending. Starting from all axes, uses that reduce take theirs away until nothing changes.
void settle_gradients(LowerContext& c) {
  for (;;) {
    partition_uses(c);
    std::vector<Placement> settled = c.gradient_placement;
    for (size_t u = 0; u < c.model.uses.size(); ++u) {
      const PartGraph& part = c.part(u);
      for (size_t i = 0; i < part.d_params.size(); ++i) {
        if (part.d_params[i] == kNone) continue;
        const Placement& found = part.placements[index(part.d_params[i])];
        std::erase_if(settled[c.model.uses[u].params[i]].pending,
                      [&](const Pending& p) { return !found.is_pending(p.axis); });
      }
    }
    if (settled == c.gradient_placement) return;
    c.gradient_placement = std::move(settled);
  }
}

// Of each use's results, the totals may be made in the backward pass: nobody waits for them.
void fuse_parts(LowerContext& c) {
  std::set<size_t> done;
  for (size_t u = 0; u < c.model.uses.size(); ++u) {
    const size_t part = c.result.part_of_use[u];
    if (!done.insert(part).second) continue;
    std::vector<bool> late;
    for (const ModelValueId v : c.model.uses[u].outputs)
      late.push_back(c.options.train && is_total(c.model, v));
    c.result.parts[part] = fuse(std::move(c.result.parts[part]), late);
  }
}

// Gradients, pending, in; gradients whole and the sum of squares of this pipeline rank's share
// out. A parameter that several pipeline ranks hold is counted on the first.
void partition_norm(LowerContext& c, int stage) {
  Graph g;
  g.name = "gradient norm";
  PartitionRequest r;
  std::map<std::string, ValueId> sums;  // by placement: terms pending alike are added first
  for (size_t p : c.stage_trained[static_cast<size_t>(stage)]) {
    const Param& param = c.model.params[p];
    const ValueId v = g.add_value("grad/" + param.name, param.type);
    g.inputs.push_back(v);
    r.inputs.push_back(c.gradient_placement[p]);
    if (c.param_stages[p].size() > 1) {
      r.inputs.back().pending.push_back({c.plan.mesh.pipeline_axis(), Reduce::sum});
      sort_pending(r.inputs.back(), c.plan.mesh);
    }
    g.outputs.push_back(v);
    r.outputs.push_back({c.param_placement[p], {}});
    if (c.param_stages[p].front() != stage) continue;
    const ValueId square = g.emit1("sum_squares", {v}, {}, Phase::U);
    ValueId& sum = sums.emplace(to_string(c.param_placement[p]), kNone).first->second;
    sum = sum == kNone ? square : g.emit1("add", {sum, square}, {}, Phase::U);
  }
  ValueId total = kNone;
  for (const auto& [placement, sum] : sums)
    total = total == kNone ? sum : g.emit1("add", {total, sum}, {}, Phase::U);
  if (total != kNone) {
    g.outputs.push_back(total);
    r.outputs.push_back({replicated(0), {}});
  }
  r.graph = &g;
  r.mesh = &c.plan.mesh;
  r.d_inputs.resize(g.d_inputs.size());
  c.norm_parts.push_back(partition(r));
}

// Inputs: hyper, the sum of squares, the loss; then of each parameter its value, its gradient and
// its states.
void partition_update(LowerContext& c, int stage) {
  Graph g;
  g.name = "update";
  PartitionRequest r;
  auto input = [&](const std::string& name, const TensorType& type, Placement placement) {
    g.inputs.push_back(g.add_value(name, type));
    r.inputs.push_back(std::move(placement));
    return g.inputs.back();
  };
  const TensorType scalar{wide(c.model.dtype), {}};
  const ValueId hyper = input("hyper", {wide(c.model.dtype), {{"", 2, 1}}}, replicated(1));
  Placement pending_total = replicated(0);
  if (c.pipelined()) pending_total.pending = {{c.plan.mesh.pipeline_axis(), Reduce::sum}};
  const ValueId total = input("grad_sum_squares", scalar, pending_total);
  const ValueId loss = input("loss", scalar, replicated(0));
  ValueId scale = kNone;
  for (size_t p : c.stage_trained[static_cast<size_t>(stage)]) {
    const Param& param = c.model.params[p];
    const Placement& at = c.param_placement[p];
    const ParamUpdate& how = c.updates[p];
    const ValueId value = input("param/" + param.name, param.type, at);
    const ValueId gradient = input("grad/" + param.name, param.type, at);
    std::vector<ValueId> states;
    for (const StateDef& s : how.states)
      states.push_back(
          input(s.prefix + "/" + param.name, state_type(s, param.type), state_placement(s, at)));
    if (how.def->update == nullptr) continue;
    if (scale == kNone)
      scale = g.emit1("clip_scale", {total, loss}, {{"max_norm", c.options.optimizer.max_norm}},
                      Phase::U);
    UpdateContext u{g,     value,      gradient,         states,   hyper,
                    scale, param.type, how.weight_decay, how.rate, how.settings};
    how.def->update(u);
  }
  g.outputs.push_back(total);  // whole, for the metrics
  r.outputs.push_back({replicated(0), {}});
  r.graph = &g;
  r.mesh = &c.plan.mesh;
  c.update_parts.push_back(partition(r));
}

// A plan may serve several families, so a letter that this model lacks is passed over if it is one
// of the field's own; any other is a slip of the pen.
void check_letters(const LowerContext& c) {
  constexpr std::string_view kUsual = "TDHGKFVELPR";
  std::vector<std::string> known;
  for (const Extent& e : c.model.extents) known.push_back(e.name);
  for (const auto& [letter, split] : c.plan.split) {
    const bool usual = letter.size() == 1 && kUsual.find(letter[0]) != std::string_view::npos;
    if (!usual && std::find(known.begin(), known.end(), letter) == known.end())
      fail("split.{}: '{}' has no such extent; it has {}", letter, c.model.name,
           fmt::join(known, ", "));
  }
}

void place_parameters(LowerContext& c) {
  const Mesh& mesh = c.plan.mesh;
  for (const auto& entry : c.plan.place) {
    const std::string& pattern = entry.first;
    const bool used = std::any_of(c.model.params.begin(), c.model.params.end(),
                                  [&](const Param& p) { return glob_match(pattern, p.name); });
    if (!used) fail("place \"{}\": no parameter of '{}' matches", pattern, c.model.name);
  }
  check_letters(c);
  for (const auto& [letter, split] : c.plan.split)
    for (const std::string& axis : split.axes)
      if (!mesh.has(axis))
        fail("split.{}: axis '{}' is not in the mesh {}", letter, axis, to_string(mesh));
  c.param_stages.resize(c.model.params.size());
  for (size_t u = 0; u < c.model.uses.size(); ++u)
    for (size_t p : c.model.uses[u].params) {
      std::vector<int>& stages = c.param_stages[p];
      if (stages.empty() || stages.back() != c.result.stage_of_use[u])
        stages.push_back(c.result.stage_of_use[u]);
    }
  c.stage_params.resize(static_cast<size_t>(mesh.pipeline_size()));
  c.stage_trained.resize(c.stage_params.size());
  for (size_t p = 0; p < c.model.params.size(); ++p) {
    const Param& param = c.model.params[p];
    c.param_placement.push_back(place_parameter(c.plan, param.name, param.type));
    check_placement("parameter '" + param.name + "'", param.type, c.param_placement.back(), mesh);
    Placement gradient = c.param_placement.back();
    for (const Axis& a : mesh.axes())
      if (a.size > 1 && a.name != mesh.pipeline_axis() && !gradient.is_split(a.name))
        gradient.pending.push_back({a.name, Reduce::sum});
    c.gradient_placement.push_back(std::move(gradient));
    for (const int stage : c.param_stages[p]) {
      c.stage_params[static_cast<size_t>(stage)].push_back(p);
      if (!param.frozen) c.stage_trained[static_cast<size_t>(stage)].push_back(p);
    }
  }
}

// Programs are lists: a plan whose lists no memory would hold is refused, with its numbers.
void check_size(const LowerContext& c) {
  constexpr int64_t kMostNodes = 20'000'000;
  int64_t nodes = 0;
  for (size_t u = 0; u < c.model.uses.size(); ++u)
    nodes += static_cast<int64_t>(c.part(u).nodes.size());
  const int64_t ranks = c.plan.mesh.ranks() / c.plan.mesh.pipeline_size();
  const int64_t total = checked_mul(checked_mul(nodes, c.plan.microbatches), ranks);
  if (total > kMostNodes)
    fail(
        "{} nodes x {} micro-batches on {} ranks of each pipeline rank are {} actions; at most {} "
        "are supported",
        nodes, c.plan.microbatches, ranks, total, kMostNodes);
}

// What the model hands out that is no total, by name; empty: nothing.
std::string value_of_tokens(const Model& model) {
  if (model.logits != kNone) return "logits";
  for (const ModelResult& r : model.results)
    if (!is_total(model, r.value)) return r.name;
  return "";
}

}  // namespace

bool is_total(const Model& model, ModelValueId v) {
  if (v == kNone) return false;
  if (v == model.loss) return true;
  const bool handed_out = std::any_of(model.results.begin(), model.results.end(),
                                      [&](const ModelResult& r) { return r.value == v; });
  return handed_out && model.values[index(v)].type.dims.empty();
}

Placement state_placement(const StateDef& state, const Placement& param) {
  Placement p;
  for (const size_t d : state.dims) p.dims.push_back(param.dims.at(d));
  return p;
}

int share_of_cores(int ranks) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, ranks));
}

Lowered lower(const Model& model, const Plan& plan, const LowerOptions& options) {
  if (options.train && model.loss == kNone) fail("model '{}' has no loss to train on", model.name);
  if (options.train && model.trained_count() == 0)
    fail("model '{}': every parameter is frozen; needs one to train", model.name);
  if (options.threads < 1) fail("{} compute threads per rank; needs 1 or more", options.threads);
  const std::string each = value_of_tokens(model);
  if (plan.microbatches > 1 && !each.empty())
    fail("model '{}' hands out {} for every token; needs microbatches = 1, found {}", model.name,
         each, plan.microbatches);
  LowerContext c{model, plan, options, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  c.updates = choose_updates(options.optimizer, model);  // refused in evaluation too
  const int stages = plan.mesh.pipeline_size();
  const int microbatches = static_cast<int>(plan.microbatches);
  c.result.stage_of_use = assign_stages(model, plan);
  // An unknown schedule is refused in evaluation too.
  c.result.schedule = make_schedule(plan.schedule, stages, microbatches);
  if (!options.train) c.result.schedule = forward_only(stages, microbatches);
  check_edges(c);
  place_parameters(c);
  differentiate_uses(c);
  settle_gradients(c);
  if (options.fuse) fuse_parts(c);
  c.result_placement.resize(model.results.size());
  for (size_t u = 0; u < model.uses.size(); ++u)
    for (size_t i = 0; i < model.uses[u].outputs.size(); ++i) {
      const ModelValueId v = model.uses[u].outputs[i];
      const Placement& placement = c.part(u).placements[index(c.part(u).outputs[i])];
      if (v == model.loss && v != kNone) c.loss_placement = placement;
      for (size_t r = 0; r < model.results.size(); ++r)
        if (v == model.results[r].value) c.result_placement[r] = placement;
    }
  if (options.train)
    for (int stage = 0; stage < stages; ++stage) {
      partition_norm(c, stage);
      partition_update(c, stage);
    }
  check_size(c);
  Programs& programs = c.result.programs;
  programs.model = model.name;
  programs.mesh = plan.mesh;
  programs.threads = options.threads;
  for (int rank = 0; rank < plan.mesh.ranks(); ++rank) {
    programs.ranks.push_back(emit_rank(c, rank));
    place_in_arena(programs.ranks.back());
  }
  // What one rank computes is what every layout has to compute.
  programs.meaning = plan.mesh.ranks() == 1
                         ? verify(programs).meaning
                         : lower(model, one_rank_plan(plan.microbatches), options).programs.meaning;
  return std::move(c.result);
}

}  // namespace plait
