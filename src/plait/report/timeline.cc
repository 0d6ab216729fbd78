#include "plait/report/timeline.h"

#include <algorithm>
#include <map>

#include "plait/report/table.h"

namespace plait {

std::vector<std::vector<int>> start_ticks(const Schedule& s) {
  std::map<std::tuple<Phase, int, int>, int> ends;
  std::vector<std::vector<int>> starts(s.ranks.size());
  std::vector<int> free(s.ranks.size(), 0);
  // Tick at which what the unit waits for has ended; -1: not known yet.
  auto ready = [&](const Unit& u) {
    const int other = u.phase == Phase::F ? u.stage - 1 : u.stage + 1;
    if (u.phase == Phase::W || other < 0 || other >= s.stages) return 0;
    const auto it = ends.find({u.phase, other, u.microbatch});
    return it == ends.end() ? -1 : it->second;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < s.ranks.size(); ++r)
      while (starts[r].size() < s.ranks[r].size()) {
        const Unit& u = s.ranks[r][starts[r].size()];
        const int at = ready(u);
        if (at < 0) break;
        starts[r].push_back(std::max(at, free[r]));
        free[r] = starts[r].back() + 1;
        ends[{u.phase, u.stage, u.microbatch}] = free[r];
        moved = true;
      }
  }
  return starts;
}

std::string explain_schedule(const Schedule& s) {
  constexpr size_t kRows = 16;
  const auto starts = start_ticks(s);
  size_t ticks = 0, units = 0;
  for (const auto& rank : starts) {
    if (!rank.empty()) ticks = std::max(ticks, static_cast<size_t>(rank.back()) + 1);
    units += rank.size();
  }
  const size_t cell = std::to_string(s.microbatches - 1).size() + 2;
  const size_t head = fmt::format("    pipeline rank {}  ", s.ranks.size() - 1).size();
  const size_t shown = std::min(ticks, (kColumns - head) / cell);
  std::string out;
  for (size_t r = 0; r < std::min(kRows, s.ranks.size()); ++r) {
    std::vector<std::string> cells(ticks, ".");
    for (size_t i = 0; i < starts[r].size(); ++i)
      cells[static_cast<size_t>(starts[r][i])] =
          fmt::format("{}{}", to_string(s.ranks[r][i].phase), s.ranks[r][i].microbatch);
    std::string line = fmt::format("{:<{}}", fmt::format("    pipeline rank {}", r), head);
    for (size_t t = 0; t < shown; ++t) line += fmt::format("{:<{}}", cells[t], cell);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  const double idle = 1 - static_cast<double>(units) / static_cast<double>(ticks * s.ranks.size());
  std::string note = fmt::format("idle {:.0f} % if every phase took the same time", 100 * idle);
  if (shown < ticks) note += fmt::format("; the first {} of {} ticks are shown", shown, ticks);
  if (s.ranks.size() > kRows)
    note += fmt::format("; the first {} of {} pipeline ranks are shown", kRows, s.ranks.size());
  return out + paragraph(note, "    ");
}

}  // namespace plait
