#include "plait/model/lora.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace plait {

namespace {

constexpr int64_t kMaxRank = int64_t{1} << 16;
constexpr std::string_view kAllLinear = "all-linear";

size_t index(ValueId id) { return static_cast<size_t>(id); }

std::string without_suffix(std::string_view name, std::string_view suffix) {
  if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  return std::string(name);
}

// How the uses read a parameter.
struct Role {
  bool out_in = false, in_out = false;  // as the weight of a product, W^T or W
  std::string other;                    // the op that reads it otherwise
  bool product() const { return (out_in || in_out) && other.empty(); }
};

std::vector<Role> find_roles(const Model& model) {
  std::vector<Role> roles(model.params.size());
  for (const BlockUse& use : model.uses) {
    const Graph& g = model.blocks[use.block];
    std::map<ValueId, size_t> bound;
    for (size_t i = 0; i < g.params.size(); ++i) bound[g.params[i]] = use.params[i];
    for (const Node& node : g.nodes)
      for (size_t i = 0; i < node.in.size(); ++i) {
        const auto it = bound.find(node.in[i]);
        if (it == bound.end()) continue;
        Role& role = roles[it->second];
        if (node.op != "matmul" || i != 1)
          role.other = node.op;
        else
          (attr_or(node.attrs, "trans_b", 0) != 0 ? role.out_in : role.in_out) = true;
      }
  }
  return roles;
}

void check_config(const Model& base, const LoraConfig& c) {
  if (base.lora) fail("model '{}' has adapters already; merge them first", base.name);
  if (c.rank < 1 || c.rank > kMaxRank) fail("LoRA: rank {}; needs 1 to {}", c.rank, kMaxRank);
  if (!std::isfinite(c.alpha) || c.alpha == 0)
    fail("LoRA: alpha {}; needs a number other than 0", c.alpha);
  if (c.targets.empty()) fail("LoRA: no target modules; name some, or \"{}\"", kAllLinear);
  for (const auto* list : {&c.targets, &c.modules_to_save})
    for (const std::string& name : *list)
      if (name.empty()) fail("LoRA: a module without a name");
}

bool has_letter(const TensorType& type, std::string_view letter) {
  return std::any_of(type.dims.begin(), type.dims.end(),
                     [&](const Extent& e) { return e.name == letter; });
}

// A target that cannot have adapters is refused by name.
void check_target(const Param& p, const Role& role, std::string_view target) {
  const std::string what = fmt::format("LoRA: target '{}' is module '{}'", target, module_name(p));
  if (!role.other.empty())
    fail("{}, which op '{}' reads; adapters go with weights of products only", what, role.other);
  if (role.out_in == role.in_out)
    fail("{}, which is the weight of {}", what,
         role.out_in ? "products both ways round; that is not supported" : "no product");
  if (role.in_out && p.file.total_rows != p.rows())
    fail("{}, a part of a fused tensor used as [in, out]; that is not supported", what);
}

// Which parameters get adapters.
std::vector<bool> find_targets(const Model& m, const LoraConfig& c,
                               const std::vector<Role>& roles) {
  std::vector<bool> targeted(m.params.size(), false);
  for (const std::string& target : c.targets) {
    bool found = false;
    for (size_t p = 0; p < m.params.size(); ++p) {
      const Param& param = m.params[p];
      // The head is left out, as PEFT does.
      const bool linear = target == kAllLinear && roles[p].product() &&
                          !has_letter(param.type, "V") && (roles[p].out_in != roles[p].in_out);
      if (!linear && !matches_module(module_name(param), target)) continue;
      check_target(param, roles[p], target);
      targeted[p] = found = true;
    }
    if (!found) fail("LoRA: model '{}' has no module '{}'", m.name, target);
  }
  return targeted;
}

// Everything but the modules to save is frozen.
void freeze(Model& m, const LoraConfig& c, const std::vector<bool>& targeted) {
  std::vector<int> uses(m.params.size(), 0);
  for (const BlockUse& use : m.uses)
    for (const size_t p : std::set<size_t>(use.params.begin(), use.params.end())) ++uses[p];
  for (Param& p : m.params) p.frozen = true;
  for (const std::string& name : c.modules_to_save) {
    bool found = false;
    for (size_t p = 0; p < m.params.size(); ++p) {
      const std::string module = without_suffix(module_name(m.params[p]), ".bias");
      if (!matches_module(module, name)) continue;
      if (targeted[p])
        fail("LoRA: module '{}' is a target and to be saved whole; needs one of the two", module);
      if (uses[p] > 1)
        fail("LoRA: module '{}' is to be saved whole, and is tied to another; PEFT would untie it",
             module);
      m.params[p].frozen = false;
      found = true;
    }
    if (!found) fail("LoRA: model '{}' has no module '{}' to save", m.name, name);
  }
}

const Extent& in_extent(const Param& p, bool transposed) { return p.type.dims[transposed ? 0 : 1]; }
const Extent& out_extent(const Param& p, bool transposed) {
  return p.type.dims[transposed ? 1 : 0];
}

bool is_part(const Param& p) { return p.file.total_rows != p.rows(); }

std::string a_name(const Param& p) {
  return fmt::format("{}{}.lora_A.weight", kPeftPrefix, module_name(p));
}
std::string b_file(const Param& p) {
  return fmt::format("{}{}.lora_B.weight", kPeftPrefix, module_name(p));
}
std::string b_name(const Param& p) {
  return is_part(p)
             ? fmt::format("{}{}.lora_B.weight", kPeftPrefix, without_suffix(p.name, ".weight"))
             : b_file(p);
}

// Adds A and B of every target to the parameters.
void add_parameters(Model& m, const LoraConfig& c, const std::vector<bool>& targeted,
                    const std::vector<Role>& roles) {
  Extent rank{"R", c.rank, 1};
  while (std::any_of(m.extents.begin(), m.extents.end(),
                     [&](const Extent& e) { return e.name == rank.name; }))
    rank.name += "R";
  m.extents.push_back(rank);
  std::map<std::string, Extent> known;  // A by name
  for (size_t i = 0; i < targeted.size(); ++i) {
    if (!targeted[i]) continue;
    const Param weight = m.params[i];
    const Extent in = in_extent(weight, roles[i].in_out), out = out_extent(weight, roles[i].in_out);
    const auto [it, fresh] = known.emplace(a_name(weight), in);
    if (it->second != in)
      fail("LoRA: the parts of module '{}' have inputs of {} and {}; needs one input",
           module_name(weight), it->second.size, in.size);
    if (fresh) {
      Param a;
      a.name = a_name(weight);
      a.type = {param_dtype(m), {rank, in}};
      // Kaiming-uniform with a = sqrt(5), as PEFT draws it.
      a.init = {Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(in.size))};
      a.file = {a.name, false, 0, c.rank};
      m.params.push_back(std::move(a));
    }
    Param b;
    b.name = b_name(weight);
    b.type = {param_dtype(m), {out, rank}};
    b.init = {Init::Kind::zeros, 0};
    b.file = {b_file(weight), false, 0, out.size};
    if (is_part(weight)) b.file = {b_file(weight), false, weight.file.row, weight.file.total_rows};
    m.params.push_back(std::move(b));
  }
}

// Which of a block's parameters have adapters in a use: -1, or the number of their A.
using Pattern = std::vector<int>;

// One block with adapters, for all uses that have the same pattern.
class BlockRewriter {
 public:
  BlockRewriter(const Graph& old, const Pattern& pattern, double scale)
      : old_(old), pattern_(pattern), scale_(scale), now_(old.values.size(), kNone) {
    for (const Value& v : old.values) taken_.insert(v.name);
  }

  // a, b: types of the adapters, by number of A and by parameter of the block.
  Graph run(const std::vector<TensorType>& a, const std::map<size_t, TensorType>& b) {
    g_.name = old_.name;
    for (ValueId v : old_.inputs) g_.inputs.push_back(declare(v));
    for (ValueId v : old_.params) g_.params.push_back(declare(v));
    for (size_t k = 0; k < a.size(); ++k) {  // named after the first weight that has it
      const auto first = std::find(pattern_.begin(), pattern_.end(), static_cast<int>(k));
      const ValueId weight = old_.params[static_cast<size_t>(first - pattern_.begin())];
      a_.push_back(g_.add_value(fresh(old_.values[index(weight)].name + ".lora_A"), a[k]));
      g_.params.push_back(a_.back());
    }
    for (const auto& [i, type] : b) {
      const std::string name = old_.values[index(old_.params[i])].name + ".lora_B";
      b_[old_.params[i]] = {a_[static_cast<size_t>(pattern_[i])], g_.add_value(fresh(name), type)};
      g_.params.push_back(b_.at(old_.params[i]).second);
    }
    for (const Node& n : old_.nodes) node(n);
    for (ValueId v : old_.outputs) g_.outputs.push_back(now_[index(v)]);
    return std::move(g_);
  }

 private:
  std::string fresh(std::string name) {
    while (!taken_.insert(name).second) name += "_";
    return name;
  }

  ValueId declare(ValueId v) {
    return now_[index(v)] = g_.add_value(old_.values[index(v)].name, old_.type(v));
  }

  void node(const Node& n) {
    std::vector<ValueId> in;
    std::vector<std::string> names;
    for (ValueId v : n.in) in.push_back(now_[index(v)]);
    for (ValueId v : n.out) names.push_back(old_.values[index(v)].name);
    const auto adapter = n.op == "matmul" ? b_.find(n.in[1]) : b_.end();
    if (adapter == b_.end()) {
      const std::vector<ValueId> out = g_.emit(n.op, in, n.attrs, n.phase, names);
      for (size_t i = 0; i < out.size(); ++i) now_[index(n.out[i])] = out[i];
      return;
    }
    const std::string& name = names[0];
    const ValueId base = g_.emit1(n.op, in, n.attrs, n.phase, fresh(name + ".base"));
    Attrs down = n.attrs;  // keeps trans_a
    down["trans_b"] = 1;
    // Parts of a fused module share x A^T.
    ValueId& low = low_.emplace(std::pair(in[0], adapter->second.first), kNone).first->second;
    if (low == kNone)
      low = g_.emit1("matmul", {in[0], adapter->second.first}, down, n.phase, fresh(name + ".low"));
    const ValueId high = g_.emit1("matmul", {low, adapter->second.second}, {{"trans_b", 1}},
                                  n.phase, fresh(name + ".high"));
    const ValueId scaled =
        g_.emit1("scale", {high}, {{"by", scale_}}, n.phase, fresh(name + ".scaled"));
    now_[index(n.out[0])] = g_.emit1("add", {base, scaled}, {}, n.phase, name);
  }

  const Graph& old_;
  const Pattern& pattern_;
  const double scale_;
  std::vector<ValueId> now_;
  std::set<std::string> taken_;
  Graph g_;
  std::vector<ValueId> a_;
  std::map<ValueId, std::pair<ValueId, ValueId>> b_;    // by weight: A, B
  std::map<std::pair<ValueId, ValueId>, ValueId> low_;  // by x and A
};

// The old block's name for the first use of it, and ".lora" after it for those that differ.
std::string block_name(const Model& m, const std::string& base) {
  std::string name = base;
  for (int n = 1;; ++n) {
    if (std::none_of(m.blocks.begin(), m.blocks.end(),
                     [&](const Graph& g) { return g.name == name; }))
      return name;
    name = fmt::format("{}.lora{}", base, n == 1 ? "" : std::to_string(n));
  }
}

// Gives every use the block that has its adapters; blocks stay shared where uses agree.
void rewrite_blocks(Model& m, const std::vector<bool>& targeted, double scale) {
  const std::vector<Graph> old = std::move(m.blocks);
  m.blocks.clear();
  std::map<std::pair<size_t, Pattern>, size_t> known;
  for (BlockUse& use : m.uses) {
    Pattern pattern(use.params.size(), -1);
    std::vector<size_t> a, b;
    for (size_t i = 0; i < use.params.size(); ++i) {
      const size_t p = use.params[i];
      if (!targeted[p]) continue;
      const size_t found = m.param_index(a_name(m.params[p]));
      const auto at = std::find(a.begin(), a.end(), found);
      pattern[i] = static_cast<int>(at - a.begin());
      if (at == a.end()) a.push_back(found);
      b.push_back(m.param_index(b_name(m.params[p])));
    }
    const auto [it, fresh] = known.emplace(std::pair(use.block, pattern), m.blocks.size());
    if (fresh) {
      std::vector<TensorType> a_types;
      std::map<size_t, TensorType> b_types;
      for (const size_t p : a) a_types.push_back(m.params[p].type);
      size_t next = 0;
      for (size_t i = 0; i < pattern.size(); ++i)
        if (pattern[i] >= 0) b_types[i] = m.params[b[next++]].type;
      Graph g = BlockRewriter(old[use.block], pattern, scale).run(a_types, b_types);
      g.name = block_name(m, g.name);
      m.blocks.push_back(std::move(g));
    }
    use.block = it->second;
    use.params.insert(use.params.end(), a.begin(), a.end());
    use.params.insert(use.params.end(), b.begin(), b.end());
  }
}

// w + scale B A, in f64; w [out, in] or [in, out].
HostTensor merged(const HostTensor& w, const HostTensor& a, const HostTensor& b, double scale,
                  bool transposed) {
  const int64_t rank = a.dims.at(0), in = a.dims.at(1), out = b.dims.at(0);
  PLAIT_CHECK(b.dims.at(1) == rank && w.elements() == in * out, "adapters of other shapes");
  const HostTensor a64 = convert(a, Dtype::f64), b64 = convert(b, Dtype::f64);
  HostTensor result = w;
  std::vector<double> row(static_cast<size_t>(in));
  for (int64_t o = 0; o < out; ++o) {
    std::fill(row.begin(), row.end(), 0.0);
    for (int64_t r = 0; r < rank; ++r) {
      const double by = scale * b64.as<double>()[o * rank + r];
      const double* from = a64.as<double>() + r * in;
      for (int64_t i = 0; i < in; ++i) row[static_cast<size_t>(i)] += by * from[i];
    }
    dispatch_float(w.dtype, [&]<class T>() {
      for (int64_t i = 0; i < in; ++i) {
        T& element = result.as<T>()[transposed ? i * out + o : o * in + i];
        element = static_cast<T>(static_cast<double>(element) + row[static_cast<size_t>(i)]);
      }
    });
  }
  return result;
}

}  // namespace

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

std::string module_name(const Param& param) { return without_suffix(param.file.tensor, ".weight"); }

bool matches_module(std::string_view module, std::string_view target) {
  if (!module.ends_with(target)) return false;
  module.remove_suffix(target.size());
  return module.empty() || module.back() == '.';
}

Model with_lora(Model base, const LoraConfig& config) {
  check_config(base, config);
  const std::vector<Role> roles = find_roles(base);
  std::vector<bool> targeted = find_targets(base, config, roles);
  freeze(base, config, targeted);
  add_parameters(base, config, targeted, roles);
  targeted.resize(base.params.size(), false);
  rewrite_blocks(base, targeted, config.scale());
  base.lora = config;
  check_model(base);
  return base;
}

std::vector<LoraTarget> lora_targets(const Model& model) {
  std::map<std::string, size_t> by_name;
  for (size_t p = 0; p < model.params.size(); ++p) by_name[model.params[p].name] = p;
  const std::vector<Role> roles = find_roles(model);
  std::vector<LoraTarget> targets;
  for (size_t p = 0; p < model.params.size(); ++p) {
    const auto a = by_name.find(a_name(model.params[p])), b = by_name.find(b_name(model.params[p]));
    if (a != by_name.end() && b != by_name.end())
      targets.push_back({p, a->second, b->second, roles[p].in_out});
  }
  return targets;
}

HostTensors merge_lora(const Model& model, const HostTensors& parameters) {
  if (!model.lora) fail("model '{}' has no adapters to merge", model.name);
  const auto value = [&](size_t p) -> const HostTensor& {
    const std::string& name = model.params[p].name;
    const auto it = parameters.find(name);
    if (it == parameters.end()) fail("cannot merge adapters: parameter '{}' has no value", name);
    return it->second;
  };
  HostTensors result;
  for (size_t p = 0; p < model.params.size(); ++p) result[model.params[p].name] = value(p);
  for (const LoraTarget& t : lora_targets(model)) {
    const std::string& name = model.params[t.weight].name;
    result[name] =
        merged(result.at(name), value(t.a), value(t.b), model.lora->scale(), t.transposed);
    result.erase(model.params[t.b].name);
  }
  for (const LoraTarget& t : lora_targets(model)) result.erase(model.params[t.a].name);
  return result;
}

}  // namespace plait
