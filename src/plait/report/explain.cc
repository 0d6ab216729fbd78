#include "plait/report/explain.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "plait/report/table.h"

namespace plait {

namespace {

size_t index(int32_t id) { return static_cast<size_t>(id); }

constexpr std::pair<std::string_view, std::string_view> kLetters[] = {
    {"T", "tokens"},       {"D", "width"},       {"H", "heads"},     {"G", "key/value heads"},
    {"F", "feed-forward"}, {"V", "vocabulary"},  {"P", "positions"}, {"E", "experts"},
    {"K", "head size"},    {"R", "adapter rank"}};

std::string letter_words(const std::string& letter) {
  for (const auto& [name, words] : kLetters)
    if (name == letter) return fmt::format("{} ({})", words, letter);
  return letter;
}

std::string list_words(const std::vector<std::string>& items) {
  if (items.size() < 2) return items.empty() ? "" : items[0];
  return fmt::format("{} and {}", fmt::join(items.begin(), items.end() - 1, ", "), items.back());
}

// The axis leaves no trace in the programs: the ranks along it repeat the same work.
bool is_idle(const Programs& programs, const Axis& axis) {
  if (axis.size == 1 || axis.name == programs.mesh.pipeline_axis()) return false;
  for (const Program& p : programs.ranks)
    for (const Buffer& b : p.buffers)
      if (!b.placement.is_replicated(axis.name)) return false;
  return true;
}

// What one axis is for, as the plan says; of letters that the model has.
std::string axis_words(const Model& model, const Plan& plan, const Programs& programs,
                       const Axis& axis) {
  if (axis.name == plan.mesh.pipeline_axis())
    return fmt::format(
        "pipeline: each of its {} holds consecutive blocks and passes activations "
        "on to the next",
        count_of(axis.size, "pipeline rank"));
  if (is_idle(programs, axis)) return "splits nothing: the ranks along it repeat the same work";
  std::vector<std::string> letters;
  bool tokens = false;
  const auto has = [&](const std::string& letter) {
    return std::any_of(model.extents.begin(), model.extents.end(),
                       [&](const Extent& e) { return e.name == letter; });
  };
  for (const auto& [letter, split] : plan.split)
    if (has(letter) && std::count(split.axes.begin(), split.axes.end(), axis.name) != 0) {
      if (letter == "T")
        tokens = true;
      else
        letters.push_back(letter_words(letter));
    }
  std::vector<std::string> roles;
  if (tokens)
    roles.push_back(
        "data: the token slots of each micro-batch are dealt out over it; gradients "
        "are summed over it once per step");
  if (!letters.empty())
    roles.push_back(fmt::format("tensor: splits {} inside each block", list_words(letters)));
  for (const auto& [pattern, dims] : plan.place)
    for (const DimSplit& d : dims)
      if (std::count(d.axes.begin(), d.axes.end(), axis.name) != 0)
        roles.push_back(fmt::format("splits parameters {}", pattern));
  if (roles.empty()) return "nothing that the plan names";
  return fmt::format("{}", fmt::join(roles, "; "));
}

// "embed, layers.0 to layers.2".
std::string names_words(const std::vector<std::string>& names) {
  auto number_at = [](const std::string& s) { return s.find_last_not_of("0123456789") + 1; };
  std::vector<std::string> words;
  for (size_t i = 0; i < names.size();) {
    size_t end = i + 1;
    const size_t at = number_at(names[i]);
    while (at < names[i].size() && end < names.size() && number_at(names[end]) == at &&
           names[end].substr(0, at) == names[i].substr(0, at))
      ++end;
    words.push_back(
        end - i < 3 ? fmt::format("{}", fmt::join(names.begin() + static_cast<int64_t>(i),
                                                  names.begin() + static_cast<int64_t>(end), ", "))
                    : names[i] + " to " + names[end - 1]);
    i = end;
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

int64_t state_bytes(const Program& program, std::string_view prefix) {
  int64_t bytes = 0;
  for (const Buffer& b : program.buffers)
    if (b.state && b.name.starts_with(prefix)) bytes += b.bytes;
  return bytes;
}

// The name in the model: converted values carry a quote for each step.
std::string tensor_words(std::string name) {
  name.erase(name.find_last_not_of('\'') + 1);
  return name;
}

// Who made the operand of a communication, and who wanted its result.
std::string why(const PartGraph& part, const PartNode& comm) {
  std::string from;
  for (const PartNode& n : part.nodes)
    if (!n.comm && std::count(n.out.begin(), n.out.end(), comm.in[0]) != 0) from = n.op;
  const Placement& before = part.placements[index(comm.in[0])];
  std::string state = "split";
  if (before.is_pending(comm.comm->axis))
    state = "partial";
  else if (before.is_replicated(comm.comm->axis))
    state = "whole";
  return fmt::format("{} after {}; whole for {}", state, from.empty() ? "an earlier step" : from,
                     comm.why == "block result" ? "the next block" : comm.why);
}

std::string part_phases(const PartGraph& part) {
  std::map<Phase, std::pair<int64_t, int64_t>> phases;  // ops, communications
  for (const PartNode& n : part.nodes) ++(n.comm ? phases[n.phase].second : phases[n.phase].first);
  std::vector<std::string> words;
  for (const auto& [phase, n] : phases)
    words.push_back(fmt::format("{} {}{}", to_string(phase), count_of(n.first, "op"),
                                n.second == 0 ? "" : " + " + count_of(n.second, "communication")));
  return fmt::format("{}", fmt::join(words, "; "));
}

}  // namespace

std::string explain_model(const Model& model) {
  std::vector<std::string> sizes;
  for (const Extent& e : model.extents)
    sizes.push_back(e.unit == 1 || e.unit == e.size
                        ? fmt::format("{} = {}", letter_words(e.name), e.size)
                        : fmt::format("{} = {} x {}", letter_words(e.name), e.units(), e.unit));
  return paragraph(
      fmt::format("model '{}': {}{} in {}, {} of {} kinds, {}", model.name,
                  count_of(model.parameter_count(), "parameter"),
                  model.trained_count() == model.parameter_count()
                      ? ""
                      : fmt::format(" ({} of them trained)", grouped(model.trained_count())),
                  info(model.dtype).name,
                  count_of(static_cast<int64_t>(model.uses.size()), "block"), model.blocks.size(),
                  fmt::join(sizes, ", ")),
      "  ");
}

std::string explain_mesh(const Model& model, const Plan& plan, const Lowered& lowered) {
  const Mesh& mesh = plan.mesh;
  std::string out = paragraph(
      fmt::format("plan: {}{}; a step is {} of {}, schedule {}{}", count_of(mesh.ranks(), "rank"),
                  mesh.ranks() == 1 ? "" : " in the mesh " + to_string(mesh),
                  count_of(plan.microbatches, "micro-batch"),
                  count_of(model.extent("T").size, "token"), lowered.schedule.name,
                  plan.recompute == Recompute::none
                      ? ""
                      : fmt::format(", {} recompute", to_string(plan.recompute))),
      "  ");
  Table axes({"axis", "what it does"}, "    ");
  for (const Axis& a : mesh.axes())
    axes.row({fmt::format("{}={}", a.name, a.size), axis_words(model, plan, lowered.programs, a)});
  if (!mesh.axes().empty()) out += axes.text();
  Table stages({"pipeline rank", "ranks", "blocks", "parameters per rank"}, "    ");
  for (int stage = 0; stage < mesh.pipeline_size(); ++stage) {
    std::vector<std::string> names;
    std::vector<int> ranks;
    for (size_t u = 0; u < model.uses.size(); ++u)
      if (lowered.stage_of_use[u] == stage) names.push_back(model.uses[u].name);
    int64_t bytes = 0;
    for (int r = 0; r < mesh.ranks(); ++r)
      if (mesh.pipeline_coordinate(r) == stage) {
        ranks.push_back(r);
        bytes =
            std::max(bytes, state_bytes(lowered.programs.ranks[static_cast<size_t>(r)], "param/"));
      }
    stages.row({std::to_string(stage), fmt::format("{}", fmt::join(ranks, " ")), names_words(names),
                bytes_text(bytes)});
  }
  return out + stages.text();
}

std::string explain_blocks(const Model& model, const Plan& plan, const Lowered& lowered) {
  std::string out;
  for (size_t p = 0; p < lowered.parts.size(); ++p) {
    const PartGraph& part = lowered.parts[p];
    std::vector<std::string> names;
    for (size_t u = 0; u < model.uses.size(); ++u)
      if (lowered.part_of_use[u] == p) names.push_back(model.uses[u].name);
    out += paragraph(
        fmt::format("block '{}' ({}): {}", part.name, names_words(names), part_phases(part)), "  ");
    Table table({"phase", "communication", "axis", "tensor", "a rank sends", "why"}, "    ");
    bool any = false;
    for (const PartNode& n : part.nodes) {
      if (!n.comm) continue;
      any = true;
      const Value& v = part.values[index(n.in[0])];
      const double bytes = step_bytes(v.type, part.placements[index(n.in[0])], *n.comm, plan.mesh);
      table.row({to_string(n.phase), to_string(n.comm->kind), n.comm->axis, tensor_words(v.name),
                 bytes_text(static_cast<int64_t>(bytes + 0.5)), why(part, n)});
    }
    if (any) out += table.text();
  }
  return out;
}

std::string explain_traffic(const Programs& programs) {
  struct Sum {
    int64_t actions = 0, bytes = 0;
  };
  std::map<std::tuple<size_t, std::string, std::string>, Sum> sums;
  constexpr std::string_view kOrder = "FBWU";
  int64_t total = 0;
  for (size_t r = 0; r < programs.ranks.size(); ++r)
    for (const Action& a : programs.ranks[r].actions) {
      const bool send = a.kind == ActionKind::send;
      if (!send && !is_collective(a.kind)) continue;
      const char phase = programs.ranks[r].units[static_cast<size_t>(a.unit)][0];
      Sum& sum = sums[{kOrder.find(phase), to_string(a.kind),
                       send ? programs.mesh.pipeline_axis() : a.comm.axis}];
      ++sum.actions;
      sum.bytes += sent_bytes(programs, static_cast<int>(r), a);
      total += sent_bytes(programs, static_cast<int>(r), a);
    }
  if (sums.empty()) return "  nothing is sent\n";
  Table table({"phase", "communication", "axis", "calls", "bytes sent", "share"}, "    ");
  constexpr std::string_view kWords[] = {"F forward", "B input gradient", "W weight gradient",
                                         "U update"};
  for (const auto& [key, sum] : sums)
    table.row({std::get<0>(key) < 4 ? std::string(kWords[std::get<0>(key)]) : "other",
               std::get<1>(key), std::get<2>(key), grouped(sum.actions), grouped(sum.bytes),
               fmt::format("{:.1f} %", 100.0 * static_cast<double>(sum.bytes) /
                                           static_cast<double>(std::max<int64_t>(1, total)))});
  return table.text();
}

std::string explain_ranks(const VerifyReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const RankReport& k : report.ranks)
    rows.push_back({grouped(k.actions), grouped(k.collectives), grouped(k.messages),
                    grouped(k.sent_bytes), bytes_text(k.state_bytes), bytes_text(k.peak_live_bytes),
                    bytes_text(k.arena_bytes)});
  return rank_table(
      {"rank", "actions", "collectives", "messages", "bytes sent", "states", "peak live", "arena"},
      rows);
}

std::string explain_states(const Programs& programs) {
  struct Sum {
    int64_t tensors = 0, most = 0, all = 0;
  };
  std::vector<std::string> order;  // as the programs list them
  std::map<std::string, Sum> sums;
  std::set<std::string> seen;
  for (const Program& p : programs.ranks) {
    std::map<std::string, int64_t> here;
    for (const Buffer& b : p.buffers) {
      if (!b.state) continue;
      const std::string kind = b.name.substr(0, b.name.find('/'));
      if (!sums.contains(kind)) order.push_back(kind);
      Sum& sum = sums[kind];
      if (seen.insert(b.name).second) ++sum.tensors;
      sum.all += b.bytes;
      sum.most = std::max(sum.most, here[kind] += b.bytes);
    }
  }
  Table table({"state", "tensors", "a rank holds at most", "all ranks"}, "    ");
  for (const std::string& kind : order) {
    const Sum& sum = sums.at(kind);
    table.row({kind, grouped(sum.tensors), bytes_text(sum.most), bytes_text(sum.all)});
  }
  return table.text();
}

std::vector<std::string> notes(const Programs& programs, const VerifyReport& report) {
  std::vector<std::string> result;
  for (const Axis& a : programs.mesh.axes())
    if (is_idle(programs, a))
      result.push_back(
          fmt::format("axis '{}' splits nothing: its {} repeat the same work; name it in [split]{}",
                      a.name, count_of(a.size, "rank"),
                      programs.mesh.pipeline_axis().empty() ? ", or as pipeline.axis" : ""));
  std::vector<size_t> idle;
  for (size_t r = 0; r < report.ranks.size(); ++r)
    if (report.ranks[r].empty_inputs > 0) idle.push_back(r);
  if (!idle.empty())
    result.push_back(
        fmt::format("no tokens for rank{} {}: T is split over more ranks than it has "
                    "slots, so they only wait; more slots would help",
                    idle.size() == 1 ? "" : "s", fmt::join(idle, " ")));
  return result;
}

std::string explain_notes(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += paragraph("note: " + note, "  ");
  return text;
}

std::string explain(const Model& model, const Plan& plan, const Lowered& lowered,
                    const VerifyReport& report) {
  return explain_model(model) + explain_mesh(model, plan, lowered) +
         "\nschedule (F forward, B input gradient, W weight gradient; the number is the "
         "micro-batch)\n" +
         explain_schedule(lowered.schedule) + "\nblocks, and the communication put into them\n" +
         explain_blocks(model, plan, lowered) + "\nwhat all ranks send in one step\n" +
         explain_traffic(lowered.programs) + "\nper rank, proved before anything runs\n" +
         explain_ranks(report) + "\nstates: what outlives a step\n" +
         explain_states(lowered.programs) + explain_notes(notes(lowered.programs, report));
}

}  // namespace plait
