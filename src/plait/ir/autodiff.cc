// Reverse-mode differentiation of one block (declared in graph.h).
#include <algorithm>
#include <set>

#include "plait/ir/op.h"

namespace plait {

namespace {

class Differentiator final : public GradContext {
 public:
  Differentiator(const Graph& forward, std::vector<bool> input_needs, std::vector<bool> param_needs)
      : graph_(forward),
        input_needs_(std::move(input_needs)),
        param_needs_(std::move(param_needs)) {
    input_needs_.resize(graph_.inputs.size(), true);
    param_needs_.resize(graph_.params.size(), true);
    gradient_.resize(graph_.values.size(), kNone);
    needs_.resize(graph_.values.size(), false);
  }

  Graph run();

  ValueId in(size_t i) const override { return node_.in.at(i); }
  ValueId out(size_t i) const override { return node_.out.at(i); }
  ValueId d_out(size_t i) const override { return gradient_[index(node_.out.at(i))]; }
  bool needs(size_t i) const override { return needs_[index(node_.in.at(i))]; }
  const Attrs& attrs() const override { return node_.attrs; }
  std::vector<ValueId> emit(const std::string& op, const std::vector<ValueId>& operands,
                            const Attrs& attributes) override {
    return graph_.emit(op, operands, attributes, Phase::W);
  }
  void add(size_t i, ValueId gradient) override {
    if (!needs(i)) return;
    ValueId& slot = gradient_[index(node_.in.at(i))];
    slot = slot == kNone ? gradient : graph_.emit1("add", {slot, gradient}, {}, Phase::W);
    // Values that only bear their number are named after what they are the gradient of.
    for (ValueId v : {gradient, slot})
      if (std::string& name = graph_.values[index(v)].name; name == fmt::format("v{}", v))
        name = "d_" + graph_.values[index(node_.in[i])].name;
  }

 private:
  static size_t index(ValueId id) { return static_cast<size_t>(id); }
  bool is_float(ValueId id) const { return info(graph_.type(id).dtype).is_float; }
  void mark_needs();
  void drop_unneeded();
  void mark_phases();

  Graph graph_;
  std::vector<bool> input_needs_, param_needs_;
  Node node_;
  std::vector<ValueId> gradient_;  // of every forward value
  std::vector<bool> needs_;
};

void Differentiator::mark_needs() {
  for (size_t i = 0; i < graph_.inputs.size(); ++i)
    needs_[index(graph_.inputs[i])] = input_needs_[i] && is_float(graph_.inputs[i]);
  for (size_t i = 0; i < graph_.params.size(); ++i)
    needs_[index(graph_.params[i])] = param_needs_[i];
  for (const Node& node : graph_.nodes) {
    const bool any =
        std::any_of(node.in.begin(), node.in.end(), [&](ValueId v) { return needs_[index(v)]; });
    for (ValueId v : node.out) needs_[index(v)] = any;
  }
}

// An op's gradient may hold nodes for operands that need none.
void Differentiator::drop_unneeded() {
  std::set<ValueId> wanted(graph_.d_inputs.begin(), graph_.d_inputs.end());
  wanted.insert(graph_.d_params.begin(), graph_.d_params.end());
  std::vector<Node> kept;
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    const bool used = std::any_of(node->out.begin(), node->out.end(),
                                  [&](ValueId v) { return wanted.contains(v); });
    if (node->phase != Phase::F && !used) continue;
    if (node->phase != Phase::F) wanted.insert(node->in.begin(), node->in.end());
    kept.push_back(std::move(*node));
  }
  graph_.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

// Everything an input gradient depends on is B; the rest of the backward nodes stay W.
void Differentiator::mark_phases() {
  std::set<ValueId> wanted(graph_.d_inputs.begin(), graph_.d_inputs.end());
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    if (node->phase == Phase::F) break;
    if (std::none_of(node->out.begin(), node->out.end(),
                     [&](ValueId v) { return wanted.contains(v); }))
      continue;
    node->phase = Phase::B;
    wanted.insert(node->in.begin(), node->in.end());
  }
  std::stable_sort(graph_.nodes.begin(), graph_.nodes.end(),
                   [](const Node& a, const Node& b) { return a.phase < b.phase; });
}

Graph Differentiator::run() {
  mark_needs();
  const std::vector<Node> forward = graph_.nodes;
  for (ValueId v : graph_.outputs) {
    ValueId d = kNone;
    if (is_float(v) && needs_[index(v)])
      d = graph_.add_value("d_" + graph_.values[index(v)].name, graph_.type(v));
    graph_.d_outputs.push_back(d);
    gradient_[index(v)] = d;
  }
  for (auto node = forward.rbegin(); node != forward.rend(); ++node) {
    node_ = *node;
    const bool reached = std::any_of(node_.out.begin(), node_.out.end(),
                                     [&](ValueId v) { return gradient_[index(v)] != kNone; });
    const bool needed =
        std::any_of(node_.in.begin(), node_.in.end(), [&](ValueId v) { return needs_[index(v)]; });
    if (!reached || !needed) continue;
    const OpDef& def = find_op(node_.op);
    if (def.grad == nullptr)
      fail("block '{}': op '{}' has no gradient: {}", graph_.name, node_.op, def.no_grad);
    def.grad(*this);
  }
  for (ValueId v : graph_.inputs) graph_.d_inputs.push_back(gradient_[index(v)]);
  for (ValueId v : graph_.params) graph_.d_params.push_back(gradient_[index(v)]);
  drop_unneeded();
  mark_phases();
  return std::move(graph_);
}

}  // namespace

Graph differentiate(const Graph& forward, std::vector<bool> input_needs,
                    std::vector<bool> param_needs) {
  for (const Node& node : forward.nodes)
    PLAIT_CHECK(node.phase == Phase::F, "block '{}' is differentiated already", forward.name);
  return Differentiator(forward, std::move(input_needs), std::move(param_needs)).run();
}

}  // namespace plait
