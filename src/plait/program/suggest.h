// What to do instead of a plan that is refused: the plan with the fewest changed fields that
// lowers and verifies; among equals the one whose number of ranks is nearest.
#pragma once

#include <optional>

#include "plait/program/lower.h"

namespace plait {

struct Suggestion {
  Plan plan;
  std::vector<std::string> changes;  // "tp: 3 -> 2"
};

// Throws Error when the plan is for another number of ranks than the world has.
void check_ranks(const Plan& plan, int ranks);

// `ranks`: the size of the world that the plan must fill; 0 leaves it free. Tries at most 120
// plans with one or two changed fields (three, to fill a world); nothing when none of them
// verifies.
std::optional<Suggestion> suggest_plan(const Model& model, const Plan& plan, int ranks,
                                       const LowerOptions& options);

}  // namespace plait
