#include "plait/ir/op.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "plait/ir/fused.h"

namespace plait {

const char* to_string(Reduce reduce) {
  constexpr const char* kNames[] = {"sum", "max", "lse"};
  return kNames[static_cast<size_t>(reduce)];
}

int64_t TensorView::elements() const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
  return n;
}

Dtype kernel_dtype(std::span<const TensorView> in, std::span<const TensorView> out) {
  for (const auto views : {in, out})
    for (const TensorView& v : views)
      if (v.dtype == Dtype::bf16) return v.dtype;
  return out[0].dtype;
}

namespace {

std::vector<std::vector<Factor>> parse_operands(std::string_view text, std::vector<bool>& wide) {
  std::vector<std::vector<Factor>> operands;
  if (text.find_first_not_of(' ') == std::string_view::npos) return operands;
  operands.emplace_back();
  wide.push_back(false);
  bool proportional = false;
  for (const char c : text) {
    if (c == ',') {
      operands.emplace_back();
      wide.push_back(false);
    } else if (c == '^') {
      wide.back() = true;
    } else if (c == '~') {
      proportional = true;
    } else if (c == '!') {
      PLAIT_CHECK(!operands.back().empty(), "a '!' without a factor in rule '{}'", text);
      operands.back().back().whole = true;
    } else if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      operands.back().push_back({c, false, proportional});
      proportional = false;
    } else {
      PLAIT_CHECK(c == ' ' || c == '.', "character '{}' in rule '{}'", c, text);  // '.': a scalar
    }
  }
  return operands;
}

bool in_any(const std::vector<std::vector<Factor>>& tensors, char letter) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const auto& tensor) { return carries(tensor, letter); });
}

bool in_all(const std::vector<std::vector<Factor>>& tensors, char letter) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const auto& tensor) { return carries(tensor, letter); });
}

// "v lse, k max"
void parse_reductions(std::string_view list, std::string_view rule,
                      std::map<char, Reduce>& contracted) {
  while (list.find_first_not_of(" ,") != std::string_view::npos) {
    list.remove_prefix(list.find_first_not_of(" ,"));
    const auto it = contracted.find(list[0]);
    const std::string_view name = list.substr(0, list.find(',')).substr(1);
    PLAIT_CHECK(it != contracted.end(), "'{}' is not contracted in rule '{}'", list[0], rule);
    if (name.starts_with(" lse"))
      it->second = Reduce::lse;
    else if (name.starts_with(" max"))
      it->second = Reduce::max;
    else
      PLAIT_CHECK(name.starts_with(" sum"), "unknown reduction '{}' in rule '{}'", name, rule);
    list.remove_prefix(1 + name.size());
  }
}

}  // namespace

Rule parse_rule(std::string_view text) {
  Rule rule;
  const size_t arrow = text.find("->");
  PLAIT_CHECK(arrow != std::string_view::npos, "rule '{}' has no arrow", text);
  std::string_view right = text.substr(arrow + 2);
  std::string_view extra;
  if (const size_t semicolon = right.find(';'); semicolon != std::string_view::npos) {
    extra = right.substr(semicolon + 1);
    right = right.substr(0, semicolon);
  }
  rule.in = parse_operands(text.substr(0, arrow), rule.wide_in);
  rule.out = parse_operands(right, rule.wide_out);
  for (const auto& operand : rule.in)
    for (const Factor& f : operand)
      if (!in_all(rule.out, f.letter)) rule.contracted[f.letter] = Reduce::sum;
  for (const auto& result : rule.out)
    for (const Factor& f : result)
      PLAIT_CHECK(in_any(rule.in, f.letter), "factor '{}' of no operand in rule '{}'", f.letter,
                  text);
  parse_reductions(extra, text, rule.contracted);
  return rule;
}

std::vector<Rule> parse_rules(std::string_view text) {
  std::vector<Rule> rules;
  for (;;) {
    const size_t bar = text.find('|');
    rules.push_back(parse_rule(text.substr(0, bar)));
    if (bar == std::string_view::npos) return rules;
    text.remove_prefix(bar + 1);
  }
}

bool carries(const std::vector<Factor>& tensor, char letter) {
  return std::any_of(tensor.begin(), tensor.end(),
                     [&](const Factor& f) { return f.letter == letter; });
}

const OpDef& find_op(std::string_view name) {
  for (const OpDef& op : all_ops())
    if (op.name == name) return op;
  fail("unknown op '{}'; docs/recipes says how to add one", name);
}

namespace {
// Adds the op's name to what its own functions throw.
template <class F>
auto in_the_name_of(const OpDef& op, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    fail("op '{}': {}", op.name, error.what());
  }
}

// Throws for an attribute that the op does not take, or takes as a number and not a list.
void check_attributes(const OpDef& op, const Attrs& attrs) {
  for (const auto& [name, value] : attrs) {
    const auto known = std::find_if(
        op.attributes.begin(), op.attributes.end(),
        [&name = name](std::string_view a) { return a.substr(0, a.find('[')) == name; });
    if (known == op.attributes.end())
      fail("op '{}': unknown attribute '{}'; it takes {}", op.name, name,
           op.attributes.empty() ? "none" : fmt::format("{}", fmt::join(op.attributes, ", ")));
    if (known->ends_with("[]") != value.is_list())
      fail("op '{}': attribute '{}' is {}, expected {}", op.name, name, to_string(value),
           value.is_list() ? "one number" : "a list such as [1 0.5]");
  }
}
}  // namespace

namespace {

bool is_integer(const OpDef& op, size_t operand) {
  return std::find(op.integer_operands.begin(), op.integer_operands.end(), operand) !=
         op.integer_operands.end();
}

// The element type of the call: that of the first operand which is not wide, if there is one.
Dtype call_dtype(const OpDef& op, const Rule& rule, const std::vector<TensorType>& in) {
  std::optional<Dtype> wide;
  for (size_t i = 0; i < in.size(); ++i) {
    if (is_integer(op, i)) continue;
    if (!rule.wide_in[i]) return in[i].dtype;
    if (!wide) wide = in[i].dtype;
  }
  return wide.value_or(Dtype::f32);
}

}  // namespace

int64_t flops_of(const OpDef& op, const Attrs& attrs, const std::vector<TensorType>& in) {
  if (op.expansion == nullptr) return op.flops(attrs, in);
  const Graph g = expand(op, attrs, in);
  int64_t total = 0;
  for (const Node& node : g.nodes) {
    std::vector<TensorType> types;
    for (const ValueId v : node.in) types.push_back(g.type(v));
    total = checked_add(total, flops_of(find_op(node.op), node.attrs, types));
  }
  return total;
}

std::vector<TensorType> infer_types(const OpDef& op, const Attrs& attrs,
                                    const std::vector<TensorType>& in) {
  check_attributes(op, attrs);
  if (op.expansion != nullptr) {
    const Graph g = in_the_name_of(op, [&] { return expand(op, attrs, in); });
    std::vector<TensorType> results;
    for (const ValueId v : g.outputs) results.push_back(g.type(v));
    return results;
  }
  const Rule rule = parse_rules(in_the_name_of(op, [&] { return op.rule(attrs, in); })).front();
  if (in.size() != rule.in.size())
    fail("op '{}': found {} operands, expected {}", op.name, in.size(), rule.in.size());
  std::map<char, Extent> bound;
  const Dtype dtype = call_dtype(op, rule, in);
  for (size_t i = 0; i < in.size(); ++i) {
    const bool integer = is_integer(op, i);
    const Dtype expected = rule.wide_in[i] ? wide(dtype) : dtype;
    if (integer != (in[i].dtype == Dtype::i32))
      fail("op '{}' operand {}: found {}, expected {}", op.name, i, to_string(in[i]),
           integer ? "i32" : "a floating-point type");
    if (!integer && in[i].dtype != expected)
      fail("op '{}' operand {}: found {}, expected {} beside the other operands", op.name, i,
           info(in[i].dtype).name, info(expected).name);
    if (in[i].dims.size() != rule.in[i].size())
      fail("op '{}' operand {}: found {}, expected {} dimensions", op.name, i, to_string(in[i]),
           rule.in[i].size());
    for (size_t d = 0; d < rule.in[i].size(); ++d) {
      const Factor& f = rule.in[i][d];
      const auto [it, fresh] = bound.emplace(f.letter, in[i].dims[d]);
      if (!fresh && !f.proportional && !it->second.same_size(in[i].dims[d]))
        fail("op '{}' operand {} dimension {}: found {} in units of {}, expected {} in units of {}",
             op.name, i, d, in[i].dims[d].size, in[i].dims[d].unit, it->second.size,
             it->second.unit);
    }
  }
  if (op.check != nullptr) in_the_name_of(op, [&] { op.check(attrs, in); });
  if (op.infer != nullptr) return op.infer(attrs, in);
  std::vector<TensorType> results;
  for (size_t i = 0; i < rule.out.size(); ++i) {
    TensorType t{rule.wide_out[i] ? wide(dtype) : dtype, {}};
    for (const Factor& f : rule.out[i]) t.dims.push_back(bound.at(f.letter));
    results.push_back(std::move(t));
  }
  return results;
}

}  // namespace plait
