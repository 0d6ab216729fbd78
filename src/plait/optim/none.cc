// none: no update. The gradient and its norm are computed all the same, for measurements; in a
// group it holds parameters fixed.
#include "plait/optim/record.h"

namespace plait {

OptimizerDef none_optimizer() {
  OptimizerDef def;
  def.name = "none";
  def.summary = "no update: gradients and their norm only";
  return def;
}

}  // namespace plait
