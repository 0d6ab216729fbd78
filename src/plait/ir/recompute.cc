// Recompute: forward results that the backward pass makes again (declared in graph.h).
#include <algorithm>
#include <set>

#include "plait/ir/op.h"

namespace plait {

namespace {

// A result is kept when making it took at least so many operations for each of its bytes. Products
// over a width of K take K/2 in f32, attention about its sequence length; norms, activations,
// gates and rotary positions take at most 3.
constexpr double kKeptFlopsPerByte = 4;
// Choosing what to keep costs the square of a block's nodes.
constexpr size_t kMostTried = 1000;

size_t index(ValueId id) { return static_cast<size_t>(id); }

class Recomputer {
 public:
  Recomputer(const Graph& joint, Recompute how) : old_(joint), how_(how) {
    maker_.resize(old_.values.size(), -1);
    again_.resize(old_.nodes.size(), false);
    for (size_t n = 0; n < old_.nodes.size(); ++n) {
      if (old_.nodes[n].phase != Phase::F) continue;
      for (ValueId v : old_.nodes[n].out) maker_[index(v)] = static_cast<int64_t>(n);
      again_[n] = how_ == Recompute::full || cheap(old_.nodes[n]);
    }
  }
  Graph run();

 private:
  bool cheap(const Node& node) const;
  int64_t kept_bytes() const;
  void keep_where_free();
  ValueId read(ValueId v, Phase phase);

  const Graph& old_;
  const Recompute how_;
  std::vector<int64_t> maker_;  // per value: the F node that makes it, or -1
  std::vector<bool> again_;     // per node: is it run again when its results are needed?
  Graph graph_;
  std::map<ValueId, ValueId> copies_;
};

bool Recomputer::cheap(const Node& node) const {
  std::vector<TensorType> types;
  int64_t bytes = 0;
  for (ValueId v : node.in) types.push_back(old_.type(v));
  for (ValueId v : node.out) bytes = checked_add(bytes, old_.type(v).bytes());
  return static_cast<double>(flops_of(find_op(node.op), node.attrs, types)) <
         kKeptFlopsPerByte * static_cast<double>(bytes);
}

// Bytes of forward results that live until B or W, under the present choice.
int64_t Recomputer::kept_bytes() const {
  std::set<ValueId> reached;
  std::vector<ValueId> open;
  auto reach = [&](const Node& node) {
    for (ValueId v : node.in)
      if (maker_[index(v)] >= 0 && reached.insert(v).second) open.push_back(v);
  };
  for (const Node& node : old_.nodes)
    if (node.phase != Phase::F) reach(node);
  int64_t bytes = 0;
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    const auto maker = static_cast<size_t>(maker_[index(v)]);
    if (again_[maker])
      reach(old_.nodes[maker]);
    else
      bytes = checked_add(bytes, old_.type(v).bytes());
  }
  return bytes;
}

// A cheap result is kept all the same where that frees other results of as many bytes: of a sum
// whose operand nobody else reads, the sum.
void Recomputer::keep_where_free() {
  if (old_.nodes.size() > kMostTried) return;
  int64_t best = kept_bytes();
  for (size_t n = 0; n < old_.nodes.size(); ++n) {
    if (!again_[n]) continue;
    again_[n] = false;
    const int64_t bytes = kept_bytes();
    if (bytes > best)
      again_[n] = true;
    else
      best = bytes;
  }
}

// What B and W nodes read in the place of `v`.
ValueId Recomputer::read(ValueId v, Phase phase) {
  const int64_t maker = maker_[index(v)];
  if (maker < 0 || !again_[static_cast<size_t>(maker)]) return v;
  if (const auto it = copies_.find(v); it != copies_.end()) return it->second;
  Node node = old_.nodes[static_cast<size_t>(maker)];
  node.phase = phase;
  for (ValueId& in : node.in) in = read(in, phase);
  for (ValueId& out : node.out) {
    const Value& value = old_.values[index(out)];
    const ValueId copy = graph_.add_value(value.name + " again", value.type);
    copies_[out] = copy;
    out = copy;
  }
  graph_.nodes.push_back(std::move(node));
  return copies_.at(v);
}

Graph Recomputer::run() {
  if (how_ == Recompute::selective) keep_where_free();
  graph_ = old_;
  graph_.nodes.clear();
  for (Node node : old_.nodes) {  // F, then B, then W
    if (node.phase != Phase::F)
      for (ValueId& v : node.in) v = read(v, node.phase);
    graph_.nodes.push_back(std::move(node));
  }
  return std::move(graph_);
}

}  // namespace

const char* to_string(Recompute how) {
  constexpr const char* kNames[] = {"none", "full", "selective"};
  return kNames[static_cast<size_t>(how)];
}

Graph recompute(const Graph& joint, Recompute how) {
  return how == Recompute::none ? joint : Recomputer(joint, how).run();
}

}  // namespace plait
