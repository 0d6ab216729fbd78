#include "plait/ops/fused.h"

namespace plait {

namespace {

// The attributes that the expansion passes on. They are numbers: no list is among them so far.
std::vector<std::string_view> passed_attributes(const Expansion& expansion) {
  std::vector<std::string_view> names;
  for (const ExpansionNode& node : expansion.nodes)
    for (const std::string& key : node.passed)
      if (std::find(names.begin(), names.end(), key) == names.end()) names.emplace_back(key);
  return names;
}

}  // namespace

OpDef fused_op(std::string_view name, std::string_view summary, std::string_view expansion) {
  OpDef op;
  op.name = name;
  op.summary = summary;
  op.expansion = parse_expansion(expansion);
  op.attributes = passed_attributes(*op.expansion);
  op.no_grad = kIsFused;
  return op;
}

}  // namespace plait
