#include "plait/model/preference.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "plait/base/error.h"
#include "plait/ir/op.h"

namespace plait {

namespace {

constexpr std::array<std::string_view, 3> kVariants = {"sigmoid", "hinge", "ipo"};

Node& find_node(Model& model) {
  Node* found = nullptr;
  for (Graph& block : model.blocks)
    for (Node& node : block.nodes) {
      if (node.op != "preference_loss") continue;
      if (found != nullptr) fail("model '{}': it has more than one preference_loss", model.name);
      found = &node;
    }
  if (found == nullptr)
    fail("model '{}': it has no preference_loss; build it with the preference head", model.name);
  return *found;
}

}  // namespace

PreferenceOptions preference_of(const Model& model) {
  Model copy = model;
  const Attrs& attrs = find_node(copy).attrs;
  PreferenceOptions options;
  options.variant = kVariants.at(static_cast<size_t>(attr_or(attrs, "variant", 0)));
  options.beta = attr_or(attrs, "beta", options.beta);
  options.label_smoothing = attr_or(attrs, "label_smoothing", 0);
  return options;
}

Model with_preference(Model model, const PreferenceOptions& options) {
  const auto at = std::find(kVariants.begin(), kVariants.end(), options.variant);
  if (at == kVariants.end())
    fail("preference loss: unknown variant '{}'; known are {}", options.variant,
         fmt::join(kVariants, ", "));
  if (!(options.beta > 0) || !std::isfinite(options.beta))
    fail("preference loss: beta is {}; must be a positive number", options.beta);
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 0.5))
    fail("preference loss: label_smoothing is {}; must be at least 0 and below 0.5",
         options.label_smoothing);
  if (options.label_smoothing > 0 && options.variant != "sigmoid")
    fail("preference loss: label_smoothing is of the variant sigmoid, not of {}", options.variant);
  find_node(model).attrs = {{"beta", options.beta},
                            {"label_smoothing", options.label_smoothing},
                            {"variant", static_cast<double>(at - kVariants.begin())}};
  check_model(model);
  return model;
}

}  // namespace plait
