// adamw: Adam with decoupled weight decay, as torch.optim.AdamW (Loshchilov and Hutter, 2017).
#include "plait/optim/record.h"

namespace plait {
namespace {

std::vector<StateDef> states(const Settings&, const TensorType& type) {
  return {{"m", every_dim(type)}, {"v", every_dim(type)}};
}

void update(UpdateContext& u) {
  const Attrs attrs = u.attrs(
      {{"beta1", u.setting("beta1")}, {"beta2", u.setting("beta2")}, {"eps", u.setting("eps")}});
  u.graph.emit("adamw", {u.value, u.gradient, u.states[0], u.states[1], u.hyper, u.scale}, attrs,
               Phase::U);
}

}  // namespace

OptimizerDef adamw_optimizer() {
  OptimizerDef def;
  def.name = "adamw";
  def.summary = "Adam with decoupled weight decay";
  def.settings = adamw_settings();
  def.states = states;
  def.update = update;
  return def;
}

std::vector<Setting> adamw_settings() {
  return {{"beta1", "decay of the first moment", 0.9, 0, kBelowOne},
          {"beta2", "decay of the second moment", 0.95, 0, kBelowOne},
          {"eps", "added to the root of the second moment", 1e-8, 0, 1}};
}

}  // namespace plait
