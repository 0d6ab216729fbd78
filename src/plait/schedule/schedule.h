// Pipeline schedules: pure functions from sizes to the order of units on every pipeline rank.
// A schedule is data; nothing here runs. Legality is checked by check_schedule for every one.
//
//   make_schedule("1f1b", 4, 8)   1F1B  (Narayanan et al., PipeDream, SOSP 2019; no weight stash)
//   make_schedule("gpipe", 4, 8)  GPipe (Huang et al., NeurIPS 2019)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plait/ir/graph.h"

namespace plait {

// One phase of one stage for one micro-batch.
struct Unit {
  Phase phase = Phase::F;
  int stage = 0;
  int microbatch = 0;
  bool operator==(const Unit&) const = default;
};
std::string to_string(const Unit& unit);  // "F s1 m3"

struct Schedule {
  std::string name;
  int stages = 1;
  int microbatches = 1;
  std::vector<std::vector<Unit>> ranks;  // per pipeline rank, in order
};

Schedule make_schedule(const std::string& name, int stages, int microbatches);
Schedule forward_only(int stages, int microbatches);  // for evaluation
std::vector<std::string> schedule_names();

// Every unit stands once; per stage and micro-batch F before B before W; W of a stage in
// micro-batch order; and the order can be carried out: no cycle between ranks when F(s) waits for
// F(s-1) and B(s) for B(s+1). Throws Error naming the unit.
void check_schedule(const Schedule& schedule, bool with_backward = true);

}  // namespace plait
