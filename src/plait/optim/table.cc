// The table of all optimizers. To add one, write its file and add its line here; nothing else.
#include "plait/optim/optimizer.h"

// X(name) stands for the record that name_optimizer() makes; one line per file.
// clang-format off
#define PLAIT_OPTIMIZERS(X) \
  X(adamw) \
  X(sgd) \
  X(adafactor) \
  X(muon) \
  X(none)
// clang-format on

namespace plait {

#define PLAIT_DECLARE(name) OptimizerDef name##_optimizer();
PLAIT_OPTIMIZERS(PLAIT_DECLARE)
#undef PLAIT_DECLARE

std::span<const OptimizerDef> all_optimizers() {
#define PLAIT_RECORD(name) name##_optimizer(),
  static const std::vector<OptimizerDef> table = {PLAIT_OPTIMIZERS(PLAIT_RECORD)};
#undef PLAIT_RECORD
  return table;
}

}  // namespace plait
