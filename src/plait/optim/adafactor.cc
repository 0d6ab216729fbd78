// adafactor: second moments of matrices kept as means over rows and columns (Shazeer and Stern,
// 2018), as torch.optim.Adafactor; beyond it, relative_step and scale_parameter can be turned off.
// Means over a split dimension are sums that stay pending until partition reduces them.
#include <limits>

#include "plait/optim/record.h"

namespace plait {
namespace {

bool factored(const TensorType& type) { return type.dims.size() >= 2; }

std::vector<StateDef> states(const Settings&, const TensorType& type) {
  const size_t rank = type.dims.size();
  if (!factored(type)) return {{"v", every_dim(type)}};
  return {{"row", dims_without(type, rank - 1)}, {"col", dims_without(type, rank - 2)}};
}

double machine_epsilon(Dtype dtype) {
  return dtype == Dtype::f64 ? std::numeric_limits<double>::epsilon()
                             : static_cast<double>(std::numeric_limits<float>::epsilon());
}

// The state, moved towards the mean of squares of the gradient along `dim`.
ValueId mean_along(UpdateContext& u, ValueId state, size_t dim) {
  const ValueId squares =
      u.emit1("sum_along", {u.gradient}, {{"dim", static_cast<double>(dim)}, {"power", 2}});
  return u.emit1(
      "adafactor_moment", {state, squares, u.hyper, u.scale},
      {{"count", static_cast<double>(u.type.dims[dim].size)}, {"decay", u.setting("beta2_decay")}});
}

ValueId direction(UpdateContext& u) {
  double eps1 = u.setting("eps1");
  if (eps1 == 0) eps1 = machine_epsilon(u.type.dtype);
  if (!factored(u.type)) {
    const ValueId squares = u.emit1("mul", {u.gradient, u.gradient});
    const ValueId v = u.emit1("adafactor_moment", {u.states[0], squares, u.hyper, u.scale},
                              {{"count", 1}, {"decay", u.setting("beta2_decay")}});
    return u.emit1("adafactor_whole", {u.gradient, v, u.scale}, {{"eps1", eps1}});
  }
  const size_t rank = u.type.dims.size();
  const ValueId row = mean_along(u, u.states[0], rank - 1);
  const ValueId col = mean_along(u, u.states[1], rank - 2);
  const ValueId sum =
      u.emit1("sum_along", {row}, {{"dim", static_cast<double>(rank - 2)}, {"power", 1}});
  return u.emit1("adafactor_direction", {u.gradient, row, col, sum, u.scale},
                 {{"count", static_cast<double>(u.type.dims[rank - 2].size)}, {"eps1", eps1}});
}

void update(UpdateContext& u) {
  const ValueId along = direction(u);
  std::vector<ValueId> in = {u.value, along, u.emit1("sum_squares", {along}), u.hyper, u.scale};
  if (u.setting("scale_parameter") != 0) in.push_back(u.emit1("sum_squares", {u.value}));
  u.emit1("adafactor_step", in,
          u.attrs({{"count", static_cast<double>(u.type.elements())},
                   {"clip", u.setting("clip")},
                   {"relative_step", u.setting("relative_step")},
                   {"scale_parameter", u.setting("scale_parameter")},
                   {"eps2", u.setting("eps2")}}));
}

void check(const Settings&, const Param& param) {
  if (param.type.dims.size() > 3)
    fail("optimizer 'adafactor': found {} dimensions, expected at most 3", param.type.dims.size());
}

}  // namespace

OptimizerDef adafactor_optimizer() {
  OptimizerDef def;
  def.name = "adafactor";
  def.summary = "second moments by rows and columns, steps relative to the parameter";
  def.settings = {
      {"beta2_decay", "share of the new in the second moment: step to this power", -0.8, -10, 0},
      {"eps1", "least second moment, as its root; 0: the element type's epsilon", 0, 0, 1},
      {"eps2", "least root mean square of a parameter that scales its step", 1e-3, 0, 1e30},
      {"clip", "largest root mean square of a step, before the rate", 1, 1e-30, 1e30},
      {"relative_step", "the rate is at most 1 / root of step", 1, 0, 1, true},
      {"scale_parameter", "steps are relative to the parameter's size", 1, 0, 1, true}};
  def.states = states;
  def.update = update;
  def.check = check;
  return def;
}

}  // namespace plait
