#include "plait/ir/graph.h"

#include <algorithm>
#include <cmath>

#include "plait/base/text.h"
#include "plait/ir/op.h"

namespace plait {

int64_t TensorType::elements() const {
  int64_t n = 1;
  for (const Extent& e : dims) n = checked_mul(n, e.size);
  return n;
}

std::string to_string(const TensorType& type) {
  std::string s(info(type.dtype).name);
  s += '[';
  for (size_t i = 0; i < type.dims.size(); ++i) {
    const Extent& e = type.dims[i];
    if (i > 0) s += ", ";
    if (!e.name.empty()) s += e.name + "=";
    s += fmt::format("{}", e.size);
    if (e.unit != 1) s += fmt::format("/{}", e.unit);
  }
  return s + "]";
}

double Attr::number() const {
  if (is_list_) fail("found the list {}, expected one number", to_string(*this));
  return number_;
}

const std::vector<double>& Attr::list() const {
  if (!is_list_) fail("found the number {}, expected a list such as [1 0.5]", number_);
  return list_;
}

bool Attr::is_finite() const {
  if (!is_list_) return std::isfinite(number_);
  return std::all_of(list_.begin(), list_.end(), [](double v) { return std::isfinite(v); });
}

std::string to_string(const Attr& attr) {
  if (!attr.is_list()) return number_text(attr.number());
  std::string s = "[";
  for (const double v : attr.list()) s += (s.size() > 1 ? " " : "") + number_text(v);
  return s + "]";
}

Attr parse_attr(Lexer& in) {
  constexpr size_t kLongest = 1 << 20;
  if (!in.accept("[")) return in.number();
  std::vector<double> list;
  while (!in.accept("]")) {
    if (in.at_line_end() || list.size() == kLongest) in.error("a list of numbers has no ']'");
    list.push_back(in.number());
  }
  return list;
}

namespace {
// Adds the attribute's name to what its value throws.
template <class F>
auto in_the_name_of(const std::string& name, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& error) {
    fail("attribute '{}': {}", name, error.what());
  }
}
}  // namespace

double attr(const Attrs& attrs, const std::string& name) {
  const auto it = attrs.find(name);
  if (it == attrs.end()) fail("attribute '{}' is missing", name);
  return in_the_name_of(name, [&] { return it->second.number(); });
}

double attr_or(const Attrs& attrs, const std::string& name, double fallback) {
  return attrs.contains(name) ? attr(attrs, name) : fallback;
}

const std::vector<double>* list_attr(const Attrs& attrs, const std::string& name) {
  const auto it = attrs.find(name);
  if (it == attrs.end()) return nullptr;
  return in_the_name_of(name, [&] { return &it->second.list(); });
}

const char* to_string(Phase phase) {
  constexpr const char* kNames[] = {"F", "B", "W", "U"};
  return kNames[static_cast<size_t>(phase)];
}

ValueId Graph::add_value(std::string value_name, TensorType type) {
  const auto id = static_cast<ValueId>(values.size());
  if (value_name.empty()) value_name = fmt::format("v{}", id);
  values.push_back({std::move(value_name), std::move(type)});
  return id;
}

std::vector<ValueId> Graph::emit(const std::string& op, const std::vector<ValueId>& in,
                                 const Attrs& attrs, Phase phase,
                                 const std::vector<std::string>& names) {
  const OpDef& def = find_op(op);
  std::vector<TensorType> types;
  for (ValueId v : in) types.push_back(type(v));
  std::vector<TensorType> results = infer_types(def, attrs, types);
  if (!names.empty() && names.size() != results.size())
    fail("op '{}': {} results are named, it has {}", op, names.size(), results.size());
  Node node{op, in, {}, attrs, phase};
  for (size_t i = 0; i < results.size(); ++i)
    node.out.push_back(add_value(names.empty() ? "" : names[i], std::move(results[i])));
  nodes.push_back(node);
  return node.out;
}

ValueId Graph::emit1(const std::string& op, const std::vector<ValueId>& in, const Attrs& attrs,
                     Phase phase, const std::string& result_name) {
  const auto out =
      result_name.empty() ? emit(op, in, attrs, phase) : emit(op, in, attrs, phase, {result_name});
  PLAIT_CHECK(out.size() == 1, "op '{}' has {} results", op, out.size());
  return out[0];
}

}  // namespace plait
