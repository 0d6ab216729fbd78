// Placement: how one tensor lies on a mesh.
//
// Every dimension has an ordered list of axes that split it, outermost first; over the other axes
// the tensor is replicated, or *pending*: each rank holds one term of a sum (or max, or
// log-sum-exp) that has not been taken yet. A split never cuts a unit of an extent; by default
// the units are dealt out evenly, the first shards getting the remainder; `sizes` says otherwise
// (also {n, 0, 0}: one owner). `stages` are the coordinates of the pipeline axis on which the
// tensor lives; empty means all of them.
//
// As text: "[dp, -]", "[dp.tp, -] sum(pp)", "[tp(40 27), -] on 0 3".
#pragma once

#include <string>
#include <vector>

#include "plait/base/text.h"
#include "plait/ir/op.h"
#include "plait/plan/mesh.h"

namespace plait {

struct DimSplit {
  std::vector<std::string> axes;
  std::vector<int64_t> sizes;  // empty: even; else one per shard of the single axis
  bool operator==(const DimSplit&) const = default;
};

struct Pending {
  std::string axis;
  Reduce reduce = Reduce::sum;
  bool operator==(const Pending&) const = default;
};

struct Placement {
  std::vector<DimSplit> dims;
  std::vector<Pending> pending;  // in mesh order
  std::vector<int> stages;

  bool is_pending(std::string_view axis) const;
  bool is_split(std::string_view axis) const;
  // Every rank of the axis holds the same values.
  bool is_replicated(std::string_view axis) const { return !is_pending(axis) && !is_split(axis); }
  bool operator==(const Placement&) const = default;
};

Placement replicated(size_t rank);
void sort_pending(Placement& placement, const Mesh& mesh);  // into mesh order
std::string to_string(const Placement& placement);
Placement parse_placement(Lexer& in, size_t rank);

// The part of the global tensor that one rank holds.
struct Box {
  std::vector<int64_t> begin, size;
  int64_t elements() const;
};
Box shard(const TensorType& type, const Placement& placement, const Mesh& mesh, int rank);
TensorType local_type(const TensorType& type, const Placement& placement, const Mesh& mesh,
                      int rank);
bool lives_on(const Placement& placement, const Mesh& mesh, int rank);
// The ranks among which a collective over `axis` runs for this tensor (stages respected).
std::vector<int> comm_group(const Placement& placement, const Mesh& mesh, int rank,
                            std::string_view axis);

// Throws Error when axes are unknown or used twice, or sizes do not add up.
void check_placement(const std::string& what, const TensorType& type, const Placement& placement,
                     const Mesh& mesh);

// The steps that turn one placement into another: the ONE reshard algorithm.
struct Comm {
  enum class Kind : uint8_t { all_reduce, all_gather, reduce_scatter, slice } kind;
  std::string axis;
  size_t dim = 0;               // all_gather, reduce_scatter, slice
  Reduce reduce = Reduce::sum;  // all_reduce, reduce_scatter
  bool operator==(const Comm&) const = default;
};
const char* to_string(Comm::Kind kind);

// Throws Error when `to` is pending where `from` is not: a term cannot be made from a whole.
std::vector<Comm> reshard_steps(const Placement& from, const Placement& to);
// The placement after one step.
Placement after(const Placement& from, const Comm& step, const DimSplit& target_dim);

// Bytes that one rank of the group sends, on average, for a step on a tensor of this placement.
double step_bytes(const TensorType& type, const Placement& from, const Comm& step,
                  const Mesh& mesh);

}  // namespace plait
