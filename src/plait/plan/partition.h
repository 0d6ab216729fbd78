// Partition: a graph written for one device becomes the graph of every rank of a mesh.
//
// The graph is differentiated already, so forward and backward are treated alike: every node
// takes the legal signature of its rule that moves the fewest bytes (then does the least work),
// and communication is inserted where an operand lies otherwise. A gradient that needs a
// reduction thus *is* a pending sum, and whoever wants it whole has to reduce it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plait/plan/plan.h"

namespace plait {

struct PartNode : Node {
  std::optional<Comm> comm;  // op is then the name of the step, with one operand and one result
  std::string why;           // of a communication: who wanted it
};

struct PartGraph {
  std::string name;
  std::vector<Value> values;          // global types; more values than the source: converted ones
  std::vector<Placement> placements;  // parallel to values
  std::vector<PartNode> nodes;
  std::vector<ValueId> inputs, params, outputs, d_outputs, d_inputs, d_params;
};

// What must hold for a result: the placement of its dimensions; sums may stay pending over the
// axes listed.
struct ResultPlacement {
  Placement placement;
  std::set<std::string> may_stay_pending;
};

struct PartitionRequest {
  const Graph* graph = nullptr;
  const Mesh* mesh = nullptr;
  std::vector<Placement> inputs, params, d_outputs;          // as they arrive (d_outputs: where
                                                             // the graph has one)
  std::vector<ResultPlacement> outputs, d_inputs, d_params;  // as they must leave
  // What F communicated is not kept for B and W; they communicate again (full recompute).
  bool forget_forward = false;
};

// Throws Error when no legal signature exists, naming block, op, rule and numbers.
PartGraph partition(const PartitionRequest& request);

// The placements of a node's results, given placements of its operands that are legal as they
// are; throws Error when they are not. The type rule of programs: the verifier uses it too.
std::vector<Placement> result_placements(const OpDef& op, const Attrs& attrs,
                                         const std::vector<TensorType>& types,
                                         const std::vector<Placement>& operands, const Mesh& mesh);

}  // namespace plait
