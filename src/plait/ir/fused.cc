#include "plait/ir/fused.h"

#include <algorithm>

#include "plait/base/half.h"
#include "plait/base/text.h"

namespace plait {

namespace {

std::string_view trim(std::string_view s) {
  const size_t begin = s.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(' ') - begin + 1);
}

std::vector<std::string_view> split(std::string_view s, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = s.find(at);
    if (const auto part = trim(s.substr(0, end)); !part.empty()) parts.push_back(part);
    if (end == std::string_view::npos) return parts;
    s.remove_prefix(end + 1);
  }
}

// Cuts s at the first `at`, which must be there.
std::pair<std::string_view, std::string_view> cut(std::string_view s, std::string_view at) {
  const size_t found = s.find(at);
  PLAIT_CHECK(found != std::string_view::npos, "no '{}' in the expansion '{}'", at, s);
  return {trim(s.substr(0, found)), trim(s.substr(found + at.size()))};
}

size_t value_of(const Expansion& e, std::string_view name) {
  const auto it = std::find(e.names.begin(), e.names.end(), name);
  PLAIT_CHECK(it != e.names.end(), "no value '{}' above in an expansion", name);
  return static_cast<size_t>(it - e.names.begin());
}

ExpansionNode parse_node(Expansion& e, std::string_view text) {
  ExpansionNode node;
  const auto [results, call] = cut(text, " = ");
  const auto [head, attributes] = cut(call, ")");
  const auto [name, operands] = cut(head, "(");
  node.name = name;
  for (const std::string_view operand : split(operands, ','))
    node.in.push_back(value_of(e, operand));
  for (const std::string_view result : split(results, ',')) {
    node.out.push_back(e.names.size());
    e.names.emplace_back(result);
  }
  for (const std::string_view attribute : split(attributes, ' ')) {
    const auto [key, value] = cut(attribute, "=");
    if (value == "*")
      node.passed.emplace_back(key);
    else
      node.fixed[std::string(key)] = std::stod(std::string(value));
  }
  return node;
}

}  // namespace

std::shared_ptr<const Expansion> parse_expansion(std::string_view text) {
  auto e = std::make_shared<Expansion>();
  const auto [head, body] = cut(text, ":");
  const auto [operands, results] = cut(head, "->");
  for (const std::string_view name : split(operands, ',')) e->names.emplace_back(name);
  e->operands = e->names.size();
  for (const std::string_view node : split(body, ';')) e->nodes.push_back(parse_node(*e, node));
  for (const std::string_view name : split(results, ',')) e->results.push_back(value_of(*e, name));
  return e;
}

Attrs node_attrs(const ExpansionNode& node, const Attrs& attrs) {
  Attrs own = node.fixed;
  for (const std::string& key : node.passed)
    if (const auto it = attrs.find(key); it != attrs.end()) own[key] = it->second;
  return own;
}

Graph expand(const OpDef& op, const Attrs& attrs, const std::vector<TensorType>& in) {
  const Expansion& e = *op.expansion;
  if (in.size() != e.operands)
    fail("op '{}': found {} operands, expected {}", op.name, in.size(), e.operands);
  Graph g;
  g.name = op.name;
  std::vector<ValueId> at(e.names.size(), kNone);
  for (size_t i = 0; i < in.size(); ++i) {
    at[i] = g.add_value(e.names[i], in[i]);
    g.inputs.push_back(at[i]);
  }
  for (const ExpansionNode& node : e.nodes) {
    std::vector<ValueId> operands;
    std::vector<std::string> names;
    for (const size_t v : node.in) operands.push_back(at[v]);
    for (const size_t v : node.out) names.push_back(e.names[v]);
    const auto out = g.emit(node.name, operands, node_attrs(node, attrs), Phase::F, names);
    for (size_t i = 0; i < out.size(); ++i) at[node.out[i]] = out[i];
  }
  for (const size_t v : e.results) g.outputs.push_back(at[v]);
  return g;
}

// ---- references -----------------------------------------------------------------------------

namespace {

// A tensor of its own.
struct Owned {
  std::vector<std::byte> memory;
  TensorView view;
};

int64_t view_bytes(const TensorView& v) { return dtype_bytes(v.dtype, v.elements()); }

void give_memory(Owned& t) {
  t.memory.resize(static_cast<size_t>(view_bytes(t.view)) + 8);
  t.view.data = t.memory.data();
}

std::vector<TensorType> types_of(std::span<const TensorView> views) {
  std::vector<TensorType> types;
  for (const TensorView& v : views) {
    types.push_back({v.dtype, {}});
    for (size_t d = 0; d < static_cast<size_t>(v.rank); ++d)
      types.back().dims.push_back({"", v.dims[d]});
  }
  return types;
}

// The call in f32: bf16 operands are widened, results rounded.
void run_in_f32(const KernelArgs& args) {
  std::vector<Owned> owned(args.in.size() + args.out.size());
  std::vector<TensorView> in(args.in.begin(), args.in.end());
  std::vector<TensorView> out(args.out.begin(), args.out.end());
  const auto widen = [&](TensorView& v, Owned& o, bool read) {
    if (v.dtype != Dtype::bf16) return;
    const auto* from = v.as<uint16_t>();
    o.view = v;
    o.view.dtype = Dtype::f32;
    give_memory(o);
    for (int64_t i = 0; read && i < v.elements(); ++i) o.view.as<float>()[i] = bf16_value(from[i]);
    v = o.view;
  };
  for (size_t i = 0; i < in.size(); ++i) widen(in[i], owned[i], true);
  for (size_t i = 0; i < out.size(); ++i) widen(out[i], owned[in.size() + i], false);
  KernelArgs wide = args;
  wide.in = in;
  wide.out = out;
  const OpDef& op = *args.op;
  std::vector<double> workspace;
  if (op.workspace != nullptr)
    workspace.resize(
        static_cast<size_t>(op.workspace(*args.attrs, types_of(in), args.threads)) / 8 + 1);
  if (op.workspace != nullptr) wide.workspace = workspace.data();
  op.reference.f32(wide);
  for (size_t i = 0; i < out.size(); ++i) {
    if (args.out[i].dtype != Dtype::bf16) continue;
    for (int64_t k = 0; k < out[i].elements(); ++k)
      args.out[i].as<uint16_t>()[k] = bf16_bits(out[i].as<float>()[k]);
  }
}

void run_primitive(const KernelArgs& args) {
  const OpDef& op = *args.op;
  const auto has = [&](Dtype dtype) {
    const auto is = [&](const TensorView& v) { return v.dtype == dtype; };
    return std::any_of(args.in.begin(), args.in.end(), is) ||
           std::any_of(args.out.begin(), args.out.end(), is);
  };
  if (has(Dtype::bf16)) return run_in_f32(args);
  (has(Dtype::f64) ? op.reference.f64 : op.reference.f32)(args);
}

// Types of the views of a node's results: sizes and places by the letters that they share with its
// operands.
std::vector<TensorView> result_views(const OpDef& op, const Attrs& attrs,
                                     const std::vector<TensorView>& in) {
  const std::vector<TensorType> types = types_of(in);
  const std::vector<TensorType> results = infer_types(op, attrs, types);
  if (op.rule == nullptr) fail("op '{}' in an expansion is fused itself", op.name);
  const Rule rule = parse_rules(op.rule(attrs, types)).front();
  std::vector<TensorView> out;
  for (size_t r = 0; r < results.size(); ++r) {
    TensorView v;
    v.dtype = results[r].dtype;
    v.rank = static_cast<int>(results[r].dims.size());
    for (size_t d = 0; d < results[r].dims.size(); ++d) {
      v.dims[d] = v.global[d] = results[r].dims[d].size;
      for (size_t i = 0; i < in.size(); ++i)
        for (size_t k = 0; k < rule.in[i].size(); ++k)
          if (rule.in[i][k].letter == rule.out[r][d].letter && !rule.out[r][d].proportional) {
            v.begin[d] = in[i].begin[k];
            v.global[d] = in[i].global[k];
          }
    }
    out.push_back(v);
  }
  return out;
}

}  // namespace

void run_reference(const KernelArgs& args) {
  PLAIT_CHECK(args.op != nullptr, "a reference is run without its op");
  if (args.op->expansion == nullptr) return run_primitive(args);
  const Expansion& e = *args.op->expansion;
  std::vector<Owned> values(e.names.size());
  for (size_t i = 0; i < args.in.size(); ++i) values[i].view = args.in[i];
  for (const ExpansionNode& node : e.nodes) {
    const Attrs attrs = node_attrs(node, *args.attrs);
    std::vector<TensorView> in;
    for (const size_t v : node.in) in.push_back(values[v].view);
    std::vector<TensorView> out = result_views(node.op(), attrs, in);
    for (size_t r = 0; r < out.size(); ++r) {
      Owned& o = values[node.out[r]];
      o.view = out[r];
      give_memory(o);
      for (const auto& [result, operand] : node.op().in_place)
        if (result == r)  // it works on a copy of the operand
          std::copy_n(static_cast<const std::byte*>(in[operand].data), view_bytes(in[operand]),
                      o.memory.data());
      out[r] = o.view;
    }
    for (const auto& [result, operand] : node.op().in_place) in[operand].data = out[result].data;
    std::vector<double> workspace(64);
    if (node.op().workspace != nullptr)
      workspace.resize(
          static_cast<size_t>(node.op().workspace(attrs, types_of(in), args.threads)) / 8 + 1);
    run_primitive({&attrs, in, out, workspace.data(), args.threads, &node.op()});
  }
  for (size_t r = 0; r < args.out.size(); ++r) {
    const TensorView& from = values[e.results[r]].view;
    if (from.data != args.out[r].data)
      std::copy_n(static_cast<const std::byte*>(from.data), view_bytes(from),
                  static_cast<std::byte*>(args.out[r].data));
  }
}

}  // namespace plait
