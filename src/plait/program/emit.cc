#include "plait/program/emit.h"

#include <algorithm>
#include <optional>
#include <set>

namespace plait {

namespace {

size_t index(int32_t id) { return static_cast<size_t>(id); }

class RankEmitter {
 public:
  RankEmitter(const LowerContext& context, int rank)
      : c_(context),
        mesh_(context.plan.mesh),
        rank_(rank),
        stage_(mesh_.pipeline_coordinate(rank)) {}
  Program run();

 private:
  using Bindings = std::map<ValueId, BufferId>;

  BufferId add(std::string name, const TensorType& type, Placement placement,
               std::vector<int> stages, bool state = false);
  Action& emit(ActionKind kind);
  void unit(std::string name);
  void fill(BufferId b, double value);
  void copy(BufferId from, BufferId to);
  // Binds the results of a node and emits it.
  void node(const PartGraph& part, const PartNode& n, Bindings& bound, const std::string& suffix);
  // The same for a node of use u's backward pass, whose results may be gradients of parameters.
  void backward_node(size_t u, const PartNode& n, const std::string& suffix, int m);
  bool adds_gradient(size_t u, const PartNode& n, Bindings& bound, const std::string& suffix);
  std::vector<int> common_stages(const std::vector<BufferId>& buffers) const;
  BufferId comm(const Comm& step, BufferId in, const Placement& result);
  BufferId op(const std::string& name, const Attrs& attrs, const std::vector<BufferId>& in,
              BufferId out);
  void workspace(Action& a, const std::vector<BufferId>& in);
  BufferId reduce_whole(BufferId b);
  BufferId join(BufferId b, std::vector<int> stages);

  void add_states();
  void start();
  void forward(int m);
  void backward(int m, bool input_gradient, bool weight_gradient);
  void receive_gradients(int m);
  void send_gradients(int m);
  void block_input_gradient(size_t use, int m);
  void block_weight_gradient(size_t use, int m);
  void accumulate_gradients(size_t use, Bindings& bound);
  BufferId started_gradient(size_t param);
  void late_outputs(size_t use, int m);
  std::vector<ModelValueId> crossing(int stage) const;
  void hand_out(ModelValueId v, BufferId b);
  void finish_total(BufferId b, const std::string& state);
  void finish_totals();
  void update();
  BufferId model_value(ModelValueId v, int m);
  BufferId operand_of(size_t param, const TensorType& wanted);

  const LowerContext& c_;
  const Mesh& mesh_;
  const int rank_, stage_;
  Program program_;
  std::vector<BufferId> params_;          // per parameter of the model, or kNone
  std::map<size_t, BufferId> gradients_;  // accumulators, per parameter
  std::map<size_t, BufferId> narrow_;     // copies of parameters in the model's own type
  std::set<size_t> started_;              // parameters whose accumulator holds something
  bool backward_whole_ = true;            // is every B followed by W of its micro-batch?
  std::map<std::pair<ModelValueId, int>, BufferId> values_, d_values_;
  std::map<std::pair<size_t, int>, Bindings> bound_;  // per use and micro-batch
  BufferId loss_ = kNone;
  std::vector<BufferId> totals_;  // sums of the model's results that are scalars; kNone: it is none
};

BufferId RankEmitter::add(std::string name, const TensorType& type, Placement placement,
                          std::vector<int> stages, bool state) {
  placement.stages = std::move(stages);
  Buffer b{std::move(name), type, std::move(placement), {}, 0, 0, state};
  b.local = local_type(b.type, b.placement, mesh_, rank_);
  b.bytes = b.local.bytes();
  program_.buffers.push_back(std::move(b));
  return static_cast<BufferId>(program_.buffers.size()) - 1;
}

Action& RankEmitter::emit(ActionKind kind) {
  program_.actions.emplace_back();
  program_.actions.back().kind = kind;
  program_.actions.back().unit = static_cast<int32_t>(program_.units.size()) - 1;
  return program_.actions.back();
}

void RankEmitter::unit(std::string name) { program_.units.push_back(std::move(name)); }

void RankEmitter::fill(BufferId b, double value) {
  Action& a = emit(ActionKind::fill);
  a.out = {b};
  a.value = value;
}

void RankEmitter::copy(BufferId from, BufferId to) {
  Action& a = emit(ActionKind::copy);
  a.in = {from};
  a.out = {to};
}

void RankEmitter::workspace(Action& a, const std::vector<BufferId>& in) {
  const OpDef& def = find_op(a.name);
  if (def.workspace == nullptr) return;
  std::vector<TensorType> local;
  for (BufferId b : in) local.push_back(program_.buffer(b).local);
  const int64_t bytes = def.workspace(a.attrs, local, c_.options.threads);
  if (bytes == 0) return;
  const BufferId w =
      add("workspace", {Dtype::f64, {{"", (bytes + 7) / 8, 1}}}, replicated(1), c_.on(stage_));
  a.workspace = w;
}

BufferId RankEmitter::comm(const Comm& step, BufferId in, const Placement& result) {
  const Buffer source = program_.buffer(in);
  const BufferId out = add(source.name + "'", source.type, result, source.placement.stages);
  constexpr ActionKind kKinds[] = {ActionKind::all_reduce, ActionKind::all_gather,
                                   ActionKind::reduce_scatter, ActionKind::slice};
  Action& a = emit(kKinds[static_cast<size_t>(step.kind)]);
  a.in = {in};
  a.out = {out};
  a.comm = step;
  if (step.kind != Comm::Kind::slice)
    a.group = comm_group(source.placement, mesh_, rank_, step.axis);
  return out;
}

// The pipeline ranks on which all these buffers live (empty: everywhere).
std::vector<int> RankEmitter::common_stages(const std::vector<BufferId>& buffers) const {
  std::vector<int> common;
  for (BufferId b : buffers) {
    const std::vector<int>& stages = program_.buffer(b).placement.stages;
    if (common.empty())
      common = stages;
    else if (!stages.empty())
      std::erase_if(common,
                    [&](int s) { return std::count(stages.begin(), stages.end(), s) == 0; });
  }
  return common;
}

void RankEmitter::node(const PartGraph& part, const PartNode& n, Bindings& bound,
                       const std::string& suffix) {
  std::vector<BufferId> in;
  for (ValueId v : n.in) in.push_back(bound.at(v));
  if (n.comm) {
    bound[n.out[0]] = comm(*n.comm, in[0], part.placements[index(n.out[0])]);
    return;
  }
  const OpDef& def = find_op(n.op);
  std::vector<BufferId> out;
  for (size_t i = 0; i < n.out.size(); ++i) {
    const Value& v = part.values[index(n.out[i])];
    BufferId target = kNone;
    for (const auto& [result, operand] : def.in_place)
      if (result == i) target = in[operand];
    // A result that is bound already is written there: a gradient, into its accumulator.
    if (const auto to = bound.find(n.out[i]); target == kNone && to != bound.end())
      target = to->second;
    if (target == kNone)
      target = add(v.name + suffix, v.type, part.placements[index(n.out[i])], common_stages(in));
    bound[n.out[i]] = target;
    out.push_back(target);
  }
  Action& a = emit(ActionKind::op);
  a.name = n.op;
  a.attrs = n.attrs;
  a.in = in;
  a.out = out;
  workspace(a, in);
}

BufferId RankEmitter::op(const std::string& name, const Attrs& attrs,
                         const std::vector<BufferId>& in, BufferId out) {
  Action& a = emit(ActionKind::op);
  a.name = name;
  a.attrs = attrs;
  a.in = in;
  a.out = {out};
  workspace(a, in);
  return out;
}

// Reduces whatever is pending; gathers nothing.
BufferId RankEmitter::reduce_whole(BufferId b) {
  Placement whole = program_.buffer(b).placement;
  whole.pending.clear();
  for (const Comm& step : reshard_steps(program_.buffer(b).placement, whole))
    b = comm(step, b, after(program_.buffer(b).placement, step, {}));
  return b;
}

// The buffer as one term of a sum over the pipeline ranks in `stages`.
BufferId RankEmitter::join(BufferId b, std::vector<int> stages) {
  const Buffer source = program_.buffer(b);
  Placement p = source.placement;
  p.pending.push_back({mesh_.pipeline_axis(), Reduce::sum});
  sort_pending(p, mesh_);
  const BufferId out = add(source.name, source.type, p, std::move(stages));
  Action& a = emit(ActionKind::join);
  a.in = {b};
  a.out = {out};
  a.comm.axis = mesh_.pipeline_axis();
  return out;
}

void RankEmitter::add_states() {
  params_.assign(c_.model.params.size(), kNone);
  for (size_t p : c_.stage_params[index(stage_)]) {
    const Param& param = c_.model.params[p];
    const std::vector<int> stages = c_.pipelined() ? c_.param_stages[p] : std::vector<int>{};
    const Placement& at = c_.param_placement[p];
    params_[p] = add("param/" + param.name, param.type, at, stages, true);
    if (!c_.options.train || param.frozen) continue;
    for (const StateDef& s : c_.updates[p].states)
      add(s.prefix + "/" + param.name, state_type(s, param.type), state_placement(s, at), stages,
          true);
    if (c_.options.keep_gradients) add("grad/" + param.name, param.type, at, stages, true);
  }
  const TensorType scalar{wide(c_.model.dtype), {}};
  if (c_.model.loss != kNone) add("loss", scalar, replicated(0), {}, true);
  for (const ModelResult& r : c_.model.results)
    if (is_total(c_.model, r.value)) add(r.name, scalar, replicated(0), {}, true);
  if (c_.options.train) add("grad_sum_squares", scalar, replicated(0), {}, true);
}

void RankEmitter::start() {
  unit("start");
  if (c_.model.loss != kNone) {
    loss_ = add("loss sum", {wide(c_.model.dtype), {}}, c_.loss_placement, c_.on(stage_));
    fill(loss_, 0);
  }
  totals_.assign(c_.model.results.size(), kNone);
  for (size_t r = 0; r < totals_.size(); ++r) {
    const ModelResult& result = c_.model.results[r];
    if (!is_total(c_.model, result.value)) continue;
    totals_[r] = add(result.name + " sum", {wide(c_.model.dtype), {}}, c_.result_placement[r],
                     c_.on(stage_));
    fill(totals_[r], 0);
  }
  if (!c_.options.train) return;
  for (size_t p : c_.stage_trained[index(stage_)]) {
    const Param& param = c_.model.params[p];
    gradients_[p] = add("grad/" + param.name, param.type, c_.gradient_placement[p], c_.on(stage_));
  }
}

BufferId RankEmitter::model_value(ModelValueId v, int m) {
  const auto it = values_.find({v, m});
  if (it != values_.end()) return it->second;
  const Value& value = c_.model.values[index(v)];
  const BufferId b = add(fmt::format("{} m{}", value.name, m), value.type,
                         place_by_letters(c_.plan, value.type), c_.on(stage_));
  Action& a = emit(ActionKind::input);
  a.name = value.name;
  a.microbatch = m;
  a.out = {b};
  return values_[{v, m}] = b;
}

// The parameter as a block takes it: itself, or its narrower copy of this step.
BufferId RankEmitter::operand_of(size_t param, const TensorType& wanted) {
  const Buffer state = program_.buffer(params_[param]);
  if (state.type.dtype == wanted.dtype) return params_[param];
  const auto [it, fresh] = narrow_.emplace(param, kNone);
  if (!fresh) return it->second;
  it->second = add(fmt::format("{} {}", c_.model.params[param].name, info(wanted.dtype).name),
                   {wanted.dtype, state.type.dims}, state.placement, state.placement.stages);
  return op("to_bf16", {}, {params_[param]}, it->second);
}

// Values that `stage` makes and the next one uses, in order.
std::vector<ModelValueId> RankEmitter::crossing(int stage) const {
  std::set<ModelValueId> made, crossing;
  for (size_t u = 0; u < c_.model.uses.size(); ++u) {
    const int at = c_.result.stage_of_use[u];
    if (at == stage) made.insert(c_.model.uses[u].outputs.begin(), c_.model.uses[u].outputs.end());
    if (at == stage + 1)
      for (ModelValueId v : c_.model.uses[u].inputs)
        if (made.contains(v)) crossing.insert(v);
  }
  return {crossing.begin(), crossing.end()};
}

// Values that programs hand out: totals are summed over micro-batches, others exist once.
void RankEmitter::hand_out(ModelValueId v, BufferId b) {
  const Buffer from = program_.buffer(b);
  const auto as_state = [&](const std::string& name) {
    copy(b, add(name, from.type, from.placement, c_.on(stage_), true));
  };
  if (v == c_.model.loss) op("accumulate", {}, {loss_, b}, loss_);
  if (v == c_.model.logits) as_state("logits");
  for (size_t r = 0; r < c_.model.results.size(); ++r) {
    if (c_.model.results[r].value != v) continue;
    if (totals_[r] != kNone)
      op("accumulate", {}, {totals_[r], b}, totals_[r]);
    else
      as_state(c_.model.results[r].name);
  }
}

void RankEmitter::forward(int m) {
  const std::string head = fmt::format("F s{} m{} ", stage_, m);
  if (stage_ > 0) {
    unit(head + "recv");
    for (ModelValueId v : crossing(stage_ - 1)) {
      const Value& value = c_.model.values[index(v)];
      values_[{v, m}] = add(fmt::format("{} m{}", value.name, m), value.type,
                            place_by_letters(c_.plan, value.type), c_.on(stage_));
      Action& a = emit(ActionKind::recv);
      a.out = {values_[{v, m}]};
      a.peer = mesh_.neighbour(rank_, mesh_.pipeline_axis(), stage_ - 1);
    }
  }
  for (size_t u = 0; u < c_.model.uses.size(); ++u) {
    if (c_.result.stage_of_use[u] != stage_) continue;
    const BlockUse& use = c_.model.uses[u];
    const PartGraph& part = c_.part(u);
    unit(head + use.name);
    Bindings& bound = bound_[{u, m}];
    for (size_t i = 0; i < use.inputs.size(); ++i)
      bound[part.inputs[i]] = model_value(use.inputs[i], m);
    for (size_t i = 0; i < use.params.size(); ++i)
      bound[part.params[i]] = operand_of(use.params[i], part.values[index(part.params[i])].type);
    for (const PartNode& n : part.nodes)
      if (n.phase == Phase::F) node(part, n, bound, fmt::format(" {} m{}", use.name, m));
    for (size_t i = 0; i < use.outputs.size(); ++i) {
      const auto made = bound.find(part.outputs[i]);
      if (made == bound.end()) continue;  // in the backward pass
      values_[{use.outputs[i], m}] = made->second;
      hand_out(use.outputs[i], made->second);
    }
  }
  if (stage_ + 1 < mesh_.pipeline_size()) {
    unit(head + "send");
    for (ModelValueId v : crossing(stage_)) {
      Action& a = emit(ActionKind::send);
      a.in = {values_.at({v, m})};
      a.peer = mesh_.neighbour(rank_, mesh_.pipeline_axis(), stage_ + 1);
    }
  }
}

// The accumulator of a parameter's gradient, holding 0 if nothing has been added yet.
BufferId RankEmitter::started_gradient(size_t param) {
  const BufferId sum = gradients_.at(param);
  if (started_.insert(param).second) fill(sum, 0);
  return sum;
}

void RankEmitter::accumulate_gradients(size_t u, Bindings& bound) {
  const PartGraph& part = c_.part(u);
  for (size_t i = 0; i < part.d_params.size(); ++i) {
    if (part.d_params[i] == kNone) continue;
    const size_t param = c_.model.uses[u].params[i];
    if (bound.at(part.d_params[i]) == gradients_.at(param)) continue;  // added already
    const BufferId sum = started_gradient(param);
    op("accumulate", {}, {sum, bound.at(part.d_params[i])}, sum);
  }
}

// The node, whose gradient is of type `made`, as it gives one of type `wanted`; nothing if it
// cannot.
static std::optional<PartNode> giving(Dtype wanted, Dtype made, PartNode n) {
  if (made == wanted) return n;
  const auto& known = find_op(n.op).attributes;
  if (wide(made) != wanted || std::count(known.begin(), known.end(), kWide) == 0) return {};
  n.attrs[kWide] = 1;
  return n;
}

// A node that makes the gradient of a parameter may write it where it is wanted: as the first term
// into the accumulator itself, which is f32 in models of bf16, too; as a later one by the op that
// adds while it computes. Sums keep the
// order of micro-batches, so B may do it only where W follows at once.
bool RankEmitter::adds_gradient(size_t u, const PartNode& n, Bindings& bound,
                                const std::string& suffix) {
  if (n.comm || (n.phase != Phase::W && !backward_whole_)) return false;
  const PartGraph& part = c_.part(u);
  std::optional<size_t> result, of;
  for (size_t r = 0; r < n.out.size(); ++r)
    for (size_t i = 0; i < part.d_params.size(); ++i)
      if (part.d_params[i] == n.out[r]) {
        if (result) return false;  // two at once
        result = r;
        of = i;
      }
  if (!result || std::count(part.d_params.begin(), part.d_params.end(), n.out[*result]) != 1)
    return false;
  for (const PartNode& other : part.nodes)
    if (std::count(other.in.begin(), other.in.end(), n.out[*result]) != 0) return false;
  const size_t param = c_.model.uses[u].params[*of];
  const BufferId sum = gradients_.at(param);
  const Value& value = part.values[index(n.out[*result])];
  PLAIT_CHECK(part.placements[index(n.out[*result])] == c_.gradient_placement[param],
              "the gradient of '{}' lies as its accumulator does not", c_.model.params[param].name);
  const auto first = giving(program_.buffer(sum).type.dtype, value.type.dtype, n);
  if (first && started_.insert(param).second) {
    bound[n.out[*result]] = sum;
    node(part, *first, bound, suffix);
    return true;
  }
  const std::string adding = n.op + "_accumulate";
  const auto ops = all_ops();
  if (std::none_of(ops.begin(), ops.end(), [&](const OpDef& op) { return op.name == adding; }))
    return false;
  started_gradient(param);
  PartNode add = n;
  add.op = adding;
  const ValueId accumulator = n.out[*result];
  add.in.insert(add.in.begin(), accumulator);  // operand and result in one buffer
  bound[accumulator] = sum;
  node(part, add, bound, suffix);
  return true;
}

void RankEmitter::backward_node(size_t u, const PartNode& n, const std::string& suffix, int m) {
  Bindings& bound = bound_.at({u, m});
  if (!adds_gradient(u, n, bound, suffix)) node(c_.part(u), n, bound, suffix);
}

// Results of the block that fusion left to the backward pass.
void RankEmitter::late_outputs(size_t u, int m) {
  const BlockUse& use = c_.model.uses[u];
  const Bindings& bound = bound_.at({u, m});
  for (size_t i = 0; i < use.outputs.size(); ++i) {
    const std::pair key(use.outputs[i], m);
    const auto made = bound.find(c_.part(u).outputs[i]);
    if (values_.contains(key) || made == bound.end()) continue;
    values_[key] = made->second;
    hand_out(use.outputs[i], made->second);
  }
}

void RankEmitter::receive_gradients(int m) {
  if (stage_ + 1 == mesh_.pipeline_size()) return;
  unit(fmt::format("B s{} m{} recv", stage_, m));
  for (ModelValueId v : crossing(stage_)) {
    if (!c_.gradient_flows[index(v)]) continue;
    const Value& value = c_.model.values[index(v)];
    const BufferId b = add(fmt::format("d_{} m{}", value.name, m), value.type,
                           place_by_letters(c_.plan, value.type), c_.on(stage_));
    d_values_[{v, m}] = b;
    Action& a = emit(ActionKind::recv);
    a.out = {b};
    a.peer = mesh_.neighbour(rank_, mesh_.pipeline_axis(), stage_ + 1);
  }
}

void RankEmitter::send_gradients(int m) {
  if (stage_ == 0) return;
  unit(fmt::format("B s{} m{} send", stage_, m));
  for (ModelValueId v : crossing(stage_ - 1)) {
    if (!c_.gradient_flows[index(v)]) continue;
    Action& a = emit(ActionKind::send);
    a.in = {d_values_.at({v, m})};
    a.peer = mesh_.neighbour(rank_, mesh_.pipeline_axis(), stage_ - 1);
  }
}

void RankEmitter::block_input_gradient(size_t u, int m) {
  const BlockUse& use = c_.model.uses[u];
  const PartGraph& part = c_.part(u);
  Bindings& bound = bound_.at({u, m});
  unit(fmt::format("B s{} m{} {}", stage_, m, use.name));
  for (size_t i = 0; i < use.outputs.size(); ++i) {
    if (part.d_outputs[i] == kNone) continue;
    const std::pair key(use.outputs[i], m);
    if (!d_values_.contains(key)) {
      // The loss itself, or a value that reaches no loss.
      const Value& value = c_.model.values[index(use.outputs[i])];
      d_values_[key] = add(fmt::format("d_{} m{}", value.name, m), value.type,
                           place_by_letters(c_.plan, value.type), c_.on(stage_));
      fill(d_values_[key], use.outputs[i] == c_.model.loss ? 1 : 0);
    }
    bound[part.d_outputs[i]] = d_values_.at(key);
  }
  for (const PartNode& n : part.nodes)
    if (n.phase == Phase::B) backward_node(u, n, fmt::format(" {} m{}", use.name, m), m);
  late_outputs(u, m);
  for (size_t i = 0; i < use.inputs.size(); ++i)
    if (part.d_inputs[i] != kNone) d_values_[{use.inputs[i], m}] = bound.at(part.d_inputs[i]);
}

void RankEmitter::block_weight_gradient(size_t u, int m) {
  const BlockUse& use = c_.model.uses[u];
  const PartGraph& part = c_.part(u);
  Bindings& bound = bound_.at({u, m});
  unit(fmt::format("W s{} m{} {}", stage_, m, use.name));
  for (const PartNode& n : part.nodes)
    if (n.phase == Phase::W) backward_node(u, n, fmt::format(" {} m{}", use.name, m), m);
  late_outputs(u, m);
  accumulate_gradients(u, bound);
  bound_.erase({u, m});
}

// B, W, or both. Both go block by block, so that what B made again for W lives no longer than its
// block; the gradient is sent on before the last block's W.
void RankEmitter::backward(int m, bool input_gradient, bool weight_gradient) {
  if (input_gradient) receive_gradients(m);
  std::vector<size_t> uses;
  for (size_t u = c_.model.uses.size(); u-- > 0;)
    if (c_.result.stage_of_use[u] == stage_) uses.push_back(u);
  for (const size_t u : uses) {
    if (input_gradient) block_input_gradient(u, m);
    if (input_gradient && u == uses.back()) send_gradients(m);
    if (weight_gradient) block_weight_gradient(u, m);
  }
}

// The whole of a total, on every rank.
void RankEmitter::finish_total(BufferId b, const std::string& state) {
  if (c_.pipelined()) b = join(b, {});
  copy(reduce_whole(b), program_.find_state(state));
}

void RankEmitter::finish_totals() {
  if (c_.model.loss != kNone) {
    unit("U loss");
    finish_total(loss_, "loss");
  }
  for (size_t r = 0; r < totals_.size(); ++r) {
    if (totals_[r] == kNone) continue;
    unit("U " + c_.model.results[r].name);
    finish_total(totals_[r], c_.model.results[r].name);
  }
}

void RankEmitter::update() {
  unit(fmt::format("U s{} gradients", stage_));
  const std::vector<size_t>& params = c_.stage_trained[index(stage_)];
  const PartGraph& norm = c_.norm_parts[index(stage_)];
  Bindings bound;
  for (size_t i = 0; i < params.size(); ++i) {
    BufferId g = started_gradient(params[i]);
    if (c_.param_stages[params[i]].size() > 1) g = join(g, c_.param_stages[params[i]]);
    bound[norm.inputs[i]] = g;
  }
  for (const PartNode& n : norm.nodes) node(norm, n, bound, "");
  const TensorType scalar{wide(c_.model.dtype), {}};
  BufferId total = kNone;
  if (norm.outputs.size() > params.size()) {
    total = bound.at(norm.outputs.back());
  } else {
    total = add("no gradient", scalar, replicated(0), c_.on(stage_));
    fill(total, 0);
  }
  if (c_.pipelined()) {
    // Squares of a parameter that several pipeline ranks hold are known on all of them; this
    // one's copy is the term.
    if (program_.buffer(total).placement.stages != c_.on(stage_)) {
      const Buffer known = program_.buffer(total);
      const BufferId mine = add(known.name, known.type, known.placement, c_.on(stage_));
      copy(total, mine);
      total = mine;
    }
    total = join(total, {});
  }
  const PartGraph& part = c_.update_parts[index(stage_)];
  Bindings b;
  b[part.inputs[0]] = add("hyper", part.values[index(part.inputs[0])].type, replicated(1), {});
  Action& hyper = emit(ActionKind::input);
  hyper.name = "hyper";
  hyper.microbatch = -1;
  hyper.out = {b[part.inputs[0]]};
  b[part.inputs[1]] = total;
  b[part.inputs[2]] = program_.find_state("loss");
  size_t next = 3;
  for (size_t i = 0; i < params.size(); ++i) {
    const std::string& name = c_.model.params[params[i]].name;
    const BufferId gradient = bound.at(norm.outputs[i]);
    if (c_.options.keep_gradients) copy(gradient, program_.find_state("grad/" + name));
    b[part.inputs[next++]] = params_[params[i]];
    b[part.inputs[next++]] = gradient;
    for (const StateDef& s : c_.updates[params[i]].states)
      b[part.inputs[next++]] = program_.find_state(s.prefix + "/" + name);
  }
  unit(fmt::format("U s{} {}", stage_, c_.options.optimizer.name));
  for (const PartNode& n : part.nodes) node(part, n, b, "");
  copy(b.at(part.outputs[0]), program_.find_state("grad_sum_squares"));
}

Program RankEmitter::run() {
  add_states();
  start();
  const std::vector<Unit>& units = c_.result.schedule.ranks[index(stage_)];
  for (size_t i = 0; i < units.size(); ++i)
    if (units[i].phase == Phase::B && (i + 1 == units.size() || units[i + 1].phase != Phase::W ||
                                       units[i + 1].microbatch != units[i].microbatch))
      backward_whole_ = false;
  for (size_t i = 0; i < units.size(); ++i) {
    const Unit& u = units[i];
    const bool both = c_.plan.recompute != Recompute::none && u.phase == Phase::B &&
                      i + 1 < units.size() && units[i + 1].phase == Phase::W &&
                      units[i + 1].microbatch == u.microbatch;
    if (u.phase == Phase::F)
      forward(u.microbatch);
    else
      backward(u.microbatch, u.phase == Phase::B, both || u.phase == Phase::W);
    if (both) ++i;
  }
  finish_totals();
  if (c_.options.train) update();
  return std::move(program_);
}

}  // namespace

Program emit_rank(const LowerContext& context, int rank) {
  return RankEmitter(context, rank).run();
}

}  // namespace plait
