// A model under a plan, in words and tables of at most 100 columns. Everything is read from what
// will run: the partitioned blocks, the schedule and the verified programs.
//
//   Lowered lowered = lower(model, plan);
//   VerifyReport report = verify(lowered.programs);
//   fmt::print("{}", explain(model, plan, lowered, report));
#pragma once

#include <string>
#include <vector>

#include "plait/program/lower.h"
#include "plait/program/verify.h"
#include "plait/report/timeline.h"

namespace plait {

std::string explain_model(const Model& model);  // sizes, and tokens of a micro-batch
// What each axis of the mesh does, and which blocks each pipeline rank has.
std::string explain_mesh(const Model& model, const Plan& plan, const Lowered& lowered);
// Of every distinct partitioned block: phases, work, and each communication with its reason.
std::string explain_blocks(const Model& model, const Plan& plan, const Lowered& lowered);
// What all ranks together send in one step, by phase, kind and axis: counted in the programs.
std::string explain_traffic(const Programs& programs);
// One row per rank; neighbours with equal rows share one.
std::string explain_ranks(const VerifyReport& report);
// What outlives a step, by kind of state: on the rank that holds most of it, and on all ranks.
std::string explain_states(const Programs& programs);
// What is right but hardly meant: axes that split nothing, ranks without tokens.
std::vector<std::string> notes(const Programs& programs, const VerifyReport& report);
std::string explain_notes(const std::vector<std::string>& notes);  // "note: ..."; may be empty

std::string explain(const Model& model, const Plan& plan, const Lowered& lowered,
                    const VerifyReport& report);

}  // namespace plait
