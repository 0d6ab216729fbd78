// A schedule as a small text timeline: one row per pipeline rank, one cell per unit, as if every
// phase took one tick and messages none. Dots are idle ticks.
//
//   rank 0  F0  F1  B0  W0 ...
#pragma once

#include <string>

#include "plait/schedule/schedule.h"

namespace plait {

// The tick at which every unit starts, parallel to schedule.ranks.
std::vector<std::vector<int>> start_ticks(const Schedule& schedule);
// At most 100 columns and 16 rows; a note says what was cut.
std::string explain_schedule(const Schedule& schedule);

}  // namespace plait
