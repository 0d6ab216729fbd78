// sgd: stochastic gradient descent with momentum, as torch.optim.SGD: weight decay is added to the
// gradient. Without momentum a parameter has no state.
#include "plait/optim/record.h"

namespace plait {
namespace {

std::vector<StateDef> states(const Settings& settings, const TensorType& type) {
  if (settings.at("momentum") == 0) return {};
  return {{"momentum", every_dim(type)}};
}

void update(UpdateContext& u) {
  if (u.states.empty()) {
    u.graph.emit("sgd", {u.value, u.gradient, u.hyper, u.scale}, u.attrs({}), Phase::U);
    return;
  }
  const Attrs attrs = u.attrs({{"momentum", u.setting("momentum")},
                               {"dampening", u.setting("dampening")},
                               {"nesterov", u.setting("nesterov")}});
  u.graph.emit("sgd_momentum", {u.value, u.gradient, u.states[0], u.hyper, u.scale}, attrs,
               Phase::U);
}

void check(const Settings& settings, const Param&) {
  if (settings.at("nesterov") != 0 &&
      (settings.at("momentum") == 0 || settings.at("dampening") != 0))
    fail("nesterov with momentum {} and dampening {}; needs momentum above 0, and no dampening",
         settings.at("momentum"), settings.at("dampening"));
}

}  // namespace

OptimizerDef sgd_optimizer() {
  OptimizerDef def;
  def.name = "sgd";
  def.summary = "gradient descent, with momentum if that is set";
  def.settings = {
      {"momentum", "decay of the running sum of gradients; 0: no state", 0, 0, kBelowOne},
      {"dampening", "1 - weight of a new gradient in that sum", 0, 0, 1},
      {"nesterov", "look ahead along the momentum", 0, 0, 1, true}};
  def.states = states;
  def.update = update;
  def.check = check;
  return def;
}

}  // namespace plait
