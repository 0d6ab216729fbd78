#include "plait/report/profile.h"

#include <algorithm>
#include <array>
#include <map>

#include "plait/report/table.h"

namespace plait {

namespace {

constexpr std::array kParts = {Part::matmul, Part::attention, Part::other,
                               Part::moved,  Part::sent,      Part::waiting};

Part part_of(const Action& a) {
  if (is_communication(a.kind)) return Part::sent;
  if (a.kind != ActionKind::op) return Part::moved;
  if (a.name.starts_with("matmul") || a.name.starts_with("linear")) return Part::matmul;
  return a.name.starts_with("attention") ? Part::attention : Part::other;
}

std::string dims_text(const TensorType& t) {
  if (t.dims.empty()) return "1";
  std::vector<int64_t> sizes;
  for (const Extent& e : t.dims) sizes.push_back(e.size);
  return fmt::format("{}", fmt::join(sizes, "x"));
}

double seconds_of(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

using Rows = std::map<std::pair<std::string, std::string>, ProfileRow>;

// What is known of each action before any time: its row, and what a call costs.
struct Known {
  ProfileRow* row = nullptr;  // null: bookkeeping
  ProfileRow* waiting = nullptr;
  Cost cost;
};

ProfileRow& row_of(Rows& rows, const std::string& name, const std::string& shapes, Part part) {
  ProfileRow& row = rows[{name, shapes}];
  row.name = name;
  row.shapes = shapes;
  row.part = part;
  return row;
}

std::vector<Known> know(const Programs& programs, int rank, const Limits& limits, bool by_shape,
                        Rows& rows) {
  const Program& p = programs.ranks[static_cast<size_t>(rank)];
  std::vector<Known> all;
  for (const Action& a : p.actions) {
    Known k;
    if (is_listed(a.kind)) {
      const std::string name = a.kind == ActionKind::op ? a.name : to_string(a.kind);
      const std::string shapes = by_shape ? local_shapes(p, a) : "";
      k.row = &row_of(rows, name, shapes, part_of(a));
      if (is_communication(a.kind) && a.kind != ActionKind::send)
        k.waiting = &row_of(rows, name + ", waiting", shapes, Part::waiting);
      k.cost = cost_of(programs, rank, a, limits);
    }
    all.push_back(k);
  }
  return all;
}

void add(const Known& k, int64_t nanoseconds, int64_t waited) {
  ++k.row->calls;
  k.row->seconds += seconds_of(nanoseconds - waited);
  k.row->flops += static_cast<double>(k.cost.flops);
  k.row->bytes += static_cast<double>(k.cost.bytes);
  k.row->limit_seconds += k.cost.seconds;
  if (k.cost.compute) k.row->compute_seconds += k.cost.seconds;
  if (k.waiting == nullptr) return;
  ++k.waiting->calls;
  k.waiting->seconds += seconds_of(waited);
}

// The sums of all steps as the mean of one.
void divide(ProfileRow& row, double steps) {
  for (double* x :
       {&row.calls, &row.seconds, &row.flops, &row.bytes, &row.limit_seconds, &row.compute_seconds})
    *x /= steps;
}

std::string ms(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }
std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}
double gap(double seconds, double limit) { return std::max(0.0, seconds - limit); }

std::string rate(const ProfileRow& row) {
  if (row.part == Part::waiting || !(row.seconds > 0)) return "-";
  if (row.compute_seconds * 2 > row.limit_seconds)
    return rate_text(row.flops / row.seconds, "FLOP/s");
  return row.bytes > 0 ? rate_text(row.bytes / row.seconds, "B/s") : "-";
}

std::string steps_text(const std::vector<int64_t>& steps) {
  if (steps.size() == 1) return fmt::format("Step {}", steps[0]);
  return fmt::format("Mean of steps {} to {}", steps.front(), steps.back());
}

std::string foreword(const Profile& p) {
  std::string bf16;
  if (p.limits.bf16_flops_per_second > 0)
    bf16 = fmt::format(", {} in bf16", rate_text(p.limits.bf16_flops_per_second, "FLOP/s"));
  std::string text = fmt::format(
      "{}: {} ms, {} x {}. The limit of a call is the longer of its FLOPs at {} (a matmul of 768 x "
      "768 x 768{}) and the bytes of its operands and results at {} (adding tensors of 64 MB), "
      "measured before the run in {:.2f} s{}; what lies in a cache goes beyond it.",
      steps_text(p.steps), ms(p.step_seconds), count_of(p.ranks, "rank"),
      count_of(p.threads, "thread"), rate_text(p.limits.flops_per_second, "FLOP/s"), bf16,
      rate_text(p.limits.bytes_per_second, "B/s"), p.limits.seconds,
      p.ranks == 1 ? "" : " by one rank alone, while all ranks share memory here");
  if (p.ranks > 1) text += " Calls are of all ranks, times the mean of a rank.";
  return paragraph(text, "  ");
}

std::string rows_table(const Profile& p) {
  Table table({p.rows.empty() || p.rows[0].shapes.empty() ? "op" : "op and shapes", "calls", "ms",
               "of step", "rate", "of limit", "gap ms"});
  for (const ProfileRow& row : p.rows) {
    const bool limited = row.limit_seconds > 0;
    table.row({row.shapes.empty() ? row.name : row.name + " " + row.shapes,
               fmt::format("{:.0f}", row.calls), ms(row.seconds / p.ranks),
               percent(row.seconds / p.ranks, p.step_seconds), rate(row),
               limited ? percent(row.limit_seconds, row.seconds) : "-",
               limited ? ms(gap(row.seconds, row.limit_seconds) / p.ranks) : "-"});
  }
  table.row({"executor: the program's walk", "-", ms(p.executor_seconds),
             percent(p.executor_seconds, p.step_seconds), "-", "-", ms(p.executor_seconds)});
  return table.text();
}

struct Total {
  double seconds = 0, limit = 0, gap = 0;
};

// Of a rank; the gap is that of the rows.
std::map<Part, Total> totals(const Profile& p) {
  std::map<Part, Total> sums;
  for (const ProfileRow& row : p.rows) {
    Total& t = sums[row.part];
    t.seconds += row.seconds / p.ranks;
    t.limit += row.limit_seconds / p.ranks;
    if (row.limit_seconds > 0) t.gap += gap(row.seconds, row.limit_seconds) / p.ranks;
  }
  return sums;
}

std::string totals_table(const Profile& p) {
  Table table({"in all", "ms", "of step", "of limit", "gap ms"});
  const std::map<Part, Total> sums = totals(p);
  for (const Part part : kParts) {
    const auto it = sums.find(part);
    if (it == sums.end()) continue;
    const Total& t = it->second;
    table.row({to_string(part), ms(t.seconds), percent(t.seconds, p.step_seconds),
               t.limit > 0 ? percent(t.limit, t.seconds) : "-", t.limit > 0 ? ms(t.gap) : "-"});
  }
  const auto plain = [&](const char* name, double seconds) {
    table.row({name, ms(seconds), percent(seconds, p.step_seconds), "-", "-"});
  };
  plain("executor", p.executor_seconds);
  plain(p.ranks == 1 ? "starting and ending a step" : "starting, and done before other ranks",
        p.idle_seconds);
  plain("driver: data, checks", p.driver_seconds);
  plain("step", p.step_seconds);
  return table.text();
}

// The key of what meets: the ranks of a collective, or a sender and its receiver.
using Meeting = std::pair<std::vector<int>, size_t>;

Meeting meeting_of(const Action& a, int rank, std::map<std::vector<int>, size_t>& count) {
  std::vector<int> who = a.group;
  if (a.kind == ActionKind::send) who = {-1, rank, a.peer};
  if (a.kind == ActionKind::recv) who = {-2, a.peer, rank};
  const size_t index = count[who]++;
  if (!is_collective(a.kind)) who[0] = -1;
  return {std::move(who), index};
}

}  // namespace

const char* to_string(Part part) {
  switch (part) {
    case Part::matmul:
      return "matmul and what is fused to it";
    case Part::attention:
      return "attention";
    case Part::other:
      return "other ops";
    case Part::moved:
      return "filled, copied, read in";
    case Part::sent:
      return "communication";
    case Part::waiting:
      return "waiting for other ranks";
  }
  return "";
}

bool is_listed(ActionKind kind) {
  return kind != ActionKind::alloc && kind != ActionKind::free && kind != ActionKind::join;
}

bool is_communication(ActionKind kind) {
  return kind == ActionKind::send || kind == ActionKind::recv || is_collective(kind);
}

std::string local_shapes(const Program& program, const Action& action) {
  std::string text;
  for (const BufferId b : action.in) text += dims_text(program.buffer(b).local) + " ";
  text += "->";
  for (const BufferId b : action.out) text += " " + dims_text(program.buffer(b).local);
  return text;
}

std::string rate_text(double per_second, const char* unit) {
  const char* prefix = per_second < 1e9 ? "M" : per_second < 1e12 ? "G" : "T";
  const double x = per_second / (per_second < 1e9 ? 1e6 : per_second < 1e12 ? 1e9 : 1e12);
  return fmt::format("{:.{}f} {}{}", x, x < 100 ? 1 : 0, prefix, unit);
}

std::string threads_text(int threads, const std::vector<std::vector<int>>& cores) {
  std::vector<int> all;
  bool pinned = true;
  for (const std::vector<int>& of_rank : cores) {
    pinned = pinned && !of_rank.empty();
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  std::vector<std::string> ranges;
  for (size_t i = 0; i < all.size();) {
    size_t end = i + 1;
    while (end < all.size() && all[end] == all[end - 1] + 1) ++end;
    ranges.push_back(end == i + 1 ? std::to_string(all[i])
                                  : fmt::format("{}-{}", all[i], all[end - 1]));
    i = end;
  }
  return fmt::format("{} x {}, {}", count_of(static_cast<int64_t>(cores.size()), "rank"),
                     count_of(threads, "thread"),
                     !pinned ? "not pinned"
                             : fmt::format("pinned to {} {}", all.size() == 1 ? "core" : "cores",
                                           fmt::join(ranges, ", ")));
}

std::vector<std::vector<int64_t>> waits(const Programs& programs,
                                        const std::vector<std::vector<ActionTime>>& times) {
  std::map<Meeting, int64_t> last;  // when the last one came
  std::vector<std::vector<std::pair<size_t, Meeting>>> meetings(programs.ranks.size());
  std::vector<std::vector<int64_t>> result;
  for (size_t r = 0; r < programs.ranks.size(); ++r) {
    std::map<std::vector<int>, size_t> count;
    const std::vector<Action>& actions = programs.ranks[r].actions;
    PLAIT_CHECK(times.at(r).size() == actions.size(), "rank {}: {} times of {} actions", r,
                times.at(r).size(), actions.size());
    result.emplace_back(actions.size(), 0);
    for (size_t i = 0; i < actions.size(); ++i) {
      if (!is_communication(actions[i].kind)) continue;
      const Meeting m = meeting_of(actions[i], static_cast<int>(r), count);
      int64_t& came = last.try_emplace(m, times[r][i].begin).first->second;
      came = std::max(came, times[r][i].begin);
      if (actions[i].kind != ActionKind::send) meetings[r].emplace_back(i, m);
    }
  }
  for (size_t r = 0; r < meetings.size(); ++r)
    for (const auto& [i, m] : meetings[r])
      result[r][i] = std::min(last.at(m), times[r][i].end) - times[r][i].begin;
  return result;
}

Profile profile(const Programs& programs, const std::deque<StepTimes>& steps, const Limits& limits,
                bool by_shape) {
  PLAIT_CHECK(!steps.empty(), "a profile of no steps");
  Profile p;
  p.ranks = static_cast<int>(programs.ranks.size());
  p.threads = programs.threads;
  p.limits = limits;
  Rows rows;
  std::vector<std::vector<Known>> known;
  for (int r = 0; r < p.ranks; ++r) known.push_back(know(programs, r, limits, by_shape, rows));
  const double n = static_cast<double>(steps.size()), each = n * p.ranks;
  for (const StepTimes& s : steps) {
    p.steps.push_back(s.step);
    p.step_seconds += s.seconds / n;
    p.driver_seconds += (s.seconds - s.session_seconds) / n;
    const std::vector<std::vector<int64_t>> waited = waits(programs, s.actions);
    for (size_t r = 0; r < known.size(); ++r) {
      const std::vector<ActionTime>& times = s.actions[r];
      int64_t listed = 0;
      for (size_t i = 0; i < times.size(); ++i) {
        if (known[r][i].row == nullptr) continue;
        listed += times[i].end - times[i].begin;
        add(known[r][i], times[i].end - times[i].begin, waited[r][i]);
      }
      const int64_t walk = times.empty() ? 0 : times.back().end - times.front().begin;
      p.rows_seconds += seconds_of(listed) / each;
      p.executor_seconds += seconds_of(walk - listed) / each;
      p.idle_seconds += std::max(0.0, s.session_seconds - seconds_of(walk)) / each;
    }
  }
  for (auto& [key, row] : rows) {
    divide(row, n);
    p.rows.push_back(row);
  }
  std::stable_sort(p.rows.begin(), p.rows.end(),
                   [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
  return p;
}

std::string profile_table(const Profile& p) {
  return foreword(p) + "\n" + rows_table(p) + "\n" + totals_table(p);
}

nlohmann::ordered_json profile_json(const Profile& p) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array(), parts;
  for (const ProfileRow& row : p.rows) {
    nlohmann::ordered_json r = {{"op", row.name}};
    if (!row.shapes.empty()) r["shapes"] = row.shapes;
    r.update({{"part", to_string(row.part)},
              {"calls", row.calls},
              {"seconds_a_rank", row.seconds / p.ranks},
              {"flops", row.flops},
              {"bytes", row.bytes}});
    if (row.limit_seconds > 0)
      r.update({{"limit", row.compute_seconds * 2 > row.limit_seconds ? "flops" : "bytes"},
                {"limit_seconds_a_rank", row.limit_seconds / p.ranks}});
    rows.push_back(std::move(r));
  }
  for (const auto& [part, t] : totals(p))
    parts[to_string(part)] = {{"seconds", t.seconds}, {"limit_seconds", t.limit}};
  nlohmann::ordered_json limits = {{"threads", p.limits.threads},
                                   {"flops_per_second", p.limits.flops_per_second},
                                   {"bytes_per_second", p.limits.bytes_per_second}};
  if (p.limits.bf16_flops_per_second > 0)
    limits["bf16_flops_per_second"] = p.limits.bf16_flops_per_second;
  return {{"steps", p.steps},
          {"ranks", p.ranks},
          {"threads", p.threads},
          {"limits", limits},
          {"step_seconds", p.step_seconds},
          {"executor_seconds", p.executor_seconds},
          {"idle_seconds", p.idle_seconds},
          {"driver_seconds", p.driver_seconds},
          {"parts", parts},
          {"rows", rows}};
}

}  // namespace plait
