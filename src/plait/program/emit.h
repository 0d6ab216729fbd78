// Internal to program/: what lower() decides once for all ranks, and the emission of one rank.
#pragma once

#include "plait/program/lower.h"

namespace plait {

struct LowerContext {
  const Model& model;
  const Plan& plan;
  const LowerOptions& options;
  Lowered result;                                 // parts, stages, schedule
  std::vector<Graph> graphs;                      // distinct blocks, differentiated
  std::vector<size_t> graph_of_use;               // index into graphs, per use of the model
  std::vector<bool> gradient_flows;               // per value of the model: does its user give one?
  std::vector<std::vector<int>> param_stages;     // pipeline ranks that use the parameter
  std::vector<Placement> param_placement;         // dimensions only
  std::vector<Placement> gradient_placement;      // with what stays pending in a micro-batch
  Placement loss_placement;                       // of one micro-batch's loss
  std::vector<Placement> result_placement;        // of the model's results, in one micro-batch
  std::vector<std::vector<size_t>> stage_params;  // parameters of a pipeline rank, in order
  std::vector<std::vector<size_t>> stage_trained;  // those that are not frozen
  std::vector<PartGraph> norm_parts;               // per pipeline rank: gradients -> whole, total
  std::vector<PartGraph> update_parts;             // per pipeline rank: the optimizer
  std::vector<ParamUpdate> updates;                // how each parameter is updated

  const PartGraph& part(size_t use) const { return result.parts[result.part_of_use[use]]; }
  // Where values that a pipeline rank makes live: empty when there is one pipeline rank only.
  std::vector<int> on(int stage) const {
    return plan.mesh.pipeline_size() == 1 ? std::vector<int>{} : std::vector<int>{stage};
  }
  bool pipelined() const { return plan.mesh.pipeline_size() > 1; }
};

// Is the value summed over micro-batches: the loss, or a result that is a scalar?
bool is_total(const Model& model, ModelValueId v);

// The placement of an optimizer's state: that of the parameter's dimensions which it has.
Placement state_placement(const StateDef& state, const Placement& param);

Program emit_rank(const LowerContext& context, int rank);

}  // namespace plait
