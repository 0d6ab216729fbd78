// The plan file: where everything lives. TOML, by hand or from a program:
//
//   mesh = ["pp=2", "dp=2", "tp=2"]      # axes, outermost first
//   microbatches = 4                     # a step is this many micro-batches of T tokens
//   recompute = "selective"              # or "none" (when left out), "full": see ir/graph.h
//
//   [split]                              # which axes split which shape letter
//   T = "dp"
//   H = "tp"
//   V = { axes = "tp", sizes = [150, 106] }
//
//   [pipeline]
//   axis = "pp"
//   schedule = "1f1b"                    # or "gpipe"
//   blocks = [4, 4]                      # uses per pipeline rank; left out: balanced by FLOPs
//
//   [place]                              # single parameters, by name or pattern with *
//   "*.o_proj.weight" = ["", "tp"]
//
// A plan never changes what is computed. Keys it does not know are refused.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plait/plan/placement.h"

namespace plait {

struct Plan {
  Mesh mesh;
  int64_t microbatches = 1;
  Recompute recompute = Recompute::none;
  std::string schedule = "1f1b";
  std::vector<int64_t> blocks;  // uses per pipeline rank; empty: balanced
  std::map<std::string, DimSplit> split;
  std::vector<std::pair<std::string, std::vector<DimSplit>>> place;  // in file order; first match
  bool operator==(const Plan&) const = default;
};

Plan parse_plan(std::string_view toml, const std::string& source);
Plan load_plan(const std::string& path);
std::string print_plan(const Plan& plan);  // parses back to the same plan
Plan one_rank_plan(int64_t microbatches);

// Placement of a tensor by the letters of its extents. An axis splits the first dimension that
// asks for it. Axes of size 1 are left out.
Placement place_by_letters(const Plan& plan, const TensorType& type);
// The same for a parameter, where [place] has the first word.
Placement place_parameter(const Plan& plan, const std::string& name, const TensorType& type);

}  // namespace plait
