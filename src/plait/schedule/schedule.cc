#include "plait/schedule/schedule.h"

#include <algorithm>
#include <functional>
#include <set>

namespace plait {

std::string to_string(const Unit& unit) {
  return fmt::format("{} s{} m{}", to_string(unit.phase), unit.stage, unit.microbatch);
}

namespace {

using RankOrder = std::vector<Unit>;

void backward(RankOrder& order, int stage, int microbatch) {
  order.push_back({Phase::B, stage, microbatch});
  order.push_back({Phase::W, stage, microbatch});
}

// All forwards, then all backwards.
RankOrder gpipe(int stage, int, int microbatches) {
  RankOrder order;
  for (int m = 0; m < microbatches; ++m) order.push_back({Phase::F, stage, m});
  for (int m = 0; m < microbatches; ++m) backward(order, stage, m);
  return order;
}

// Enough forwards to fill the pipeline below, then one backward after each forward.
RankOrder one_forward_one_backward(int stage, int stages, int microbatches) {
  RankOrder order;
  const int warm_up = std::min(microbatches, stages - stage - 1);
  int done = 0;
  for (int m = 0; m < microbatches; ++m) {
    order.push_back({Phase::F, stage, m});
    if (m >= warm_up) backward(order, stage, done++);
  }
  while (done < microbatches) backward(order, stage, done++);
  return order;
}

struct Entry {
  const char* name;
  RankOrder (*order)(int stage, int stages, int microbatches);
};
constexpr Entry kSchedules[] = {{"gpipe", gpipe}, {"1f1b", one_forward_one_backward}};

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Entry& e : kSchedules) names.emplace_back(e.name);
  return names;
}

Schedule make_schedule(const std::string& name, int stages, int microbatches) {
  for (const Entry& e : kSchedules) {
    if (name != e.name) continue;
    Schedule s{name, stages, microbatches, {}};
    for (int stage = 0; stage < stages; ++stage)
      s.ranks.push_back(e.order(stage, stages, microbatches));
    check_schedule(s);
    return s;
  }
  fail("unknown schedule '{}'; known are {}", name, fmt::join(schedule_names(), ", "));
}

Schedule forward_only(int stages, int microbatches) {
  Schedule s{"forward", stages, microbatches, {}};
  for (int stage = 0; stage < stages; ++stage) {
    s.ranks.emplace_back();
    for (int m = 0; m < microbatches; ++m) s.ranks.back().push_back({Phase::F, stage, m});
  }
  return s;
}

namespace {

void check_order_per_stage(const Schedule& s, bool with_backward) {
  const int phases = with_backward ? 3 : 1;
  std::vector<std::vector<int>> seen(static_cast<size_t>(s.stages),
                                     std::vector<int>(static_cast<size_t>(s.microbatches), 0));
  std::vector<int> next_w(static_cast<size_t>(s.stages), 0);
  for (const RankOrder& order : s.ranks)
    for (const Unit& u : order) {
      if (u.stage < 0 || u.stage >= s.stages || u.microbatch < 0 ||
          u.microbatch >= s.microbatches || u.phase == Phase::U)
        fail("schedule '{}': unit {} is outside {} stages and {} micro-batches", s.name,
             to_string(u), s.stages, s.microbatches);
      int& done = seen[static_cast<size_t>(u.stage)][static_cast<size_t>(u.microbatch)];
      if (done != static_cast<int>(u.phase))
        fail("schedule '{}': unit {} stands after {} of F, B, W are done", s.name, to_string(u),
             done);
      ++done;
      if (u.phase == Phase::W && u.microbatch != next_w[static_cast<size_t>(u.stage)]++)
        fail("schedule '{}': unit {} is not in micro-batch order", s.name, to_string(u));
    }
  for (int stage = 0; stage < s.stages; ++stage)
    for (int m = 0; m < s.microbatches; ++m)
      if (seen[static_cast<size_t>(stage)][static_cast<size_t>(m)] != phases)
        fail("schedule '{}': stage {} micro-batch {} has {} of {} phases", s.name, stage, m,
             seen[static_cast<size_t>(stage)][static_cast<size_t>(m)], phases);
}

}  // namespace

void check_schedule(const Schedule& s, bool with_backward) {
  check_order_per_stage(s, with_backward);
  std::set<std::tuple<Phase, int, int>> done;
  std::vector<size_t> at(s.ranks.size(), 0);
  auto ready = [&](const Unit& u) {
    if (u.phase == Phase::F)
      return u.stage == 0 || done.contains({Phase::F, u.stage - 1, u.microbatch});
    if (u.phase == Phase::B)
      return u.stage == s.stages - 1 || done.contains({Phase::B, u.stage + 1, u.microbatch});
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < s.ranks.size(); ++r)
      while (at[r] < s.ranks[r].size() && ready(s.ranks[r][at[r]])) {
        const Unit& u = s.ranks[r][at[r]++];
        done.insert({u.phase, u.stage, u.microbatch});
        moved = true;
      }
  }
  for (size_t r = 0; r < s.ranks.size(); ++r)
    if (at[r] < s.ranks[r].size())
      fail("schedule '{}': pipeline rank {} waits for ever at {}", s.name, r,
           to_string(s.ranks[r][at[r]]));
}

}  // namespace plait
