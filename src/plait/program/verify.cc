#include "plait/program/verify.h"

#include <algorithm>
#include <deque>

#include "plait/plan/partition.h"
#include "plait/program/meaning.h"

namespace plait {

std::string describe(const Programs& programs, int rank, size_t action) {
  const Program& p = programs.ranks.at(static_cast<size_t>(rank));
  const Action& a = p.actions.at(action);
  const BufferId b = a.out.empty() ? a.in.at(0) : a.out[0];
  return fmt::format("rank {} action {} '{}' (b{} is '{}', in '{}')", rank, action,
                     print_action(p, a), b, p.buffer(b).name,
                     p.units.at(static_cast<size_t>(a.unit)));
}

namespace {

size_t index(BufferId id) { return static_cast<size_t>(id); }

Placement without_stages(Placement p) {
  p.stages.clear();
  return p;
}

bool same_sizes(const TensorType& a, const TensorType& b) {
  if (a.dtype != b.dtype || a.dims.size() != b.dims.size()) return false;
  for (size_t i = 0; i < a.dims.size(); ++i)
    if (!a.dims[i].same_size(b.dims[i])) return false;
  return true;
}

// Everything that can be known of one rank alone.
class RankVerifier {
 public:
  RankVerifier(const Programs& programs, int rank)
      : programs_(programs), program_(programs.ranks[static_cast<size_t>(rank)]), rank_(rank) {}
  RankReport run();

 private:
  enum class Life : uint8_t { unborn, allocated, written, unreadable, gone };
  struct State {
    Life life = Life::unborn;
    size_t born = 0, last = 0;  // actions
  };

  template <class... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
    fail("{}: {}", describe(programs_, rank_, at_),
         fmt::format(format, std::forward<Args>(args)...));
  }
  const Buffer& buffer(BufferId id) const { return program_.buffer(id); }
  void birth(BufferId id);
  void death(BufferId id);
  void read(BufferId id);
  void write(BufferId id, bool in_place);
  void check_types(const Action& a);
  void check_op(const Action& a);
  void check_comm(const Action& a);
  void step(const Action& a);

  const Programs& programs_;
  const Program& program_;
  const int rank_;
  size_t at_ = 0;
  std::vector<State> states_;
  std::map<int64_t, std::pair<int64_t, BufferId>> live_;  // offset -> end, buffer
  int64_t live_bytes_ = 0;
  RankReport report_;
};

void RankVerifier::birth(BufferId id) {
  const Buffer& b = buffer(id);
  if (b.offset % dtype_bytes(b.type.dtype, 1) != 0)
    fail("rank {} b{} '{}' lies at byte {}, which is not aligned for {}", rank_, id, b.name,
         b.offset, info(b.type.dtype).name);
  live_bytes_ += b.bytes;
  report_.peak_live_bytes = std::max(report_.peak_live_bytes, live_bytes_);
  if (b.bytes == 0) return;
  const int64_t end = checked_add(b.offset, b.bytes);
  if (end > program_.arena_bytes)
    error("b{} ends at {}, the arena at {}", id, end, program_.arena_bytes);
  auto next = live_.lower_bound(b.offset);
  if (next != live_.end() && next->first < end)
    error("b{} at {} to {} overlaps b{} '{}', which is live", id, b.offset, end,
          next->second.second, buffer(next->second.second).name);
  if (next != live_.begin() && std::prev(next)->second.first > b.offset)
    error("b{} at {} to {} overlaps b{} '{}', which is live", id, b.offset, end,
          std::prev(next)->second.second, buffer(std::prev(next)->second.second).name);
  live_[b.offset] = {end, id};
}

void RankVerifier::death(BufferId id) {
  live_bytes_ -= buffer(id).bytes;
  if (buffer(id).bytes > 0) live_.erase(buffer(id).offset);
}

void RankVerifier::read(BufferId id) {
  State& s = states_[index(id)];
  if (s.life == Life::written) {
    s.last = at_;
    return;
  }
  if (s.life == Life::gone || s.life == Life::unreadable)
    error("reads b{} '{}' after {} {}", id, buffer(id).name, describe(programs_, rank_, s.last),
          s.life == Life::gone ? "released it" : "left it unreadable");
  for (size_t i = at_ + 1; i < program_.actions.size(); ++i)
    for (BufferId out : program_.actions[i].out)
      if (out == id && program_.actions[i].kind != ActionKind::alloc)
        error("reads b{} '{}' before it is written, by {}", id, buffer(id).name,
              describe(programs_, rank_, i));
  error("reads b{} '{}', which nothing writes", id, buffer(id).name);
}

void RankVerifier::write(BufferId id, bool in_place) {
  State& s = states_[index(id)];
  if (s.life == Life::unborn) error("writes b{} '{}', which is not allocated", id, buffer(id).name);
  if (s.life == Life::gone)
    error("writes b{} '{}' after {} released it", id, buffer(id).name,
          describe(programs_, rank_, s.last));
  if (s.life != Life::allocated && !in_place && !buffer(id).state)
    error("writes b{} '{}', which {} used already; a buffer is written once", id, buffer(id).name,
          describe(programs_, rank_, s.last));
  s.life = Life::written;
  s.last = at_;
}

void RankVerifier::check_op(const Action& a) {
  const OpDef& op = find_op(a.name);
  std::vector<TensorType> types, local;
  std::vector<Placement> placements;
  for (BufferId b : a.in) {
    types.push_back(buffer(b).type);
    local.push_back(buffer(b).local);
    placements.push_back(buffer(b).placement);
  }
  const std::vector<TensorType> results = infer_types(op, a.attrs, types);
  const std::vector<Placement> placed =
      result_placements(op, a.attrs, types, placements, programs_.mesh);
  if (results.size() != a.out.size())
    error("has {} results, expected {}", a.out.size(), results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const Buffer& out = buffer(a.out[i]);
    if (!same_sizes(out.type, results[i]))
      error("result {} is {}, expected {}", i, to_string(out.type), to_string(results[i]));
    if (without_stages(out.placement) != placed[i])
      error("result {} claims to lie as {}, but lies as {}", i, to_string(out.placement),
            to_string(placed[i]));
    for (BufferId in : a.in)
      if (in == a.out[i] &&
          std::none_of(op.in_place.begin(), op.in_place.end(),
                       [&](const auto& p) { return p.first == i && a.in[p.second] == in; }))
        error("writes its operand b{}; '{}' does not work in place there", in, a.name);
  }
  for (const auto& [result, operand] : op.in_place)
    if (a.out[result] != a.in[operand])
      error("works in place: result {} must be operand {}", result, operand);
  const int64_t needed =
      op.workspace == nullptr ? 0 : op.workspace(a.attrs, local, programs_.threads);
  const int64_t have = a.workspace == kNone ? 0 : buffer(a.workspace).bytes;
  if (have < needed) error("has {} bytes of workspace, needs {}", have, needed);
}

void RankVerifier::check_comm(const Action& a) {
  const Buffer &in = buffer(a.in[0]), &out = buffer(a.out[0]);
  if (!same_sizes(in.type, out.type))
    error("makes {} of {}", to_string(out.type), to_string(in.type));
  Placement expected = in.placement;
  const std::string& axis = a.comm.axis;
  if (a.kind == ActionKind::join) {
    if (axis.empty() || axis != programs_.mesh.pipeline_axis() || in.placement.is_pending(axis))
      error("joins over '{}', which is not the pipeline axis or pending already", axis);
    const std::vector<int> here = {programs_.mesh.pipeline_coordinate(rank_)};
    if (in.placement.stages != here && programs_.mesh.pipeline_size() > 1)
      error("joins a tensor that lives on other pipeline ranks too ({}): it would be counted twice",
            to_string(in.placement));
    expected.pending.push_back({axis, Reduce::sum});
    sort_pending(expected, programs_.mesh);
    expected.stages = out.placement.stages;
    if (!lives_on(out.placement, programs_.mesh, rank_)) error("result does not live here");
  } else if (a.kind == ActionKind::copy) {
    expected.stages = out.placement.stages;  // a copy may be for fewer pipeline ranks
  } else {
    if (a.kind == ActionKind::all_reduce || a.kind == ActionKind::reduce_scatter) {
      const auto& pending = in.placement.pending;
      if (std::find(pending.begin(), pending.end(), Pending{axis, a.comm.reduce}) == pending.end())
        error("operand lies as {}: no {} over '{}' is pending", to_string(in.placement),
              to_string(a.comm.reduce), axis);
    }
    if (a.kind != ActionKind::all_reduce && a.comm.dim >= in.placement.dims.size())
      error("dimension {} of {}", a.comm.dim, to_string(in.type));
    if (a.kind == ActionKind::all_gather && (in.placement.dims[a.comm.dim].axes.empty() ||
                                             in.placement.dims[a.comm.dim].axes.back() != axis))
      error("operand lies as {}: '{}' is not its innermost split", to_string(in.placement), axis);
    if (a.kind == ActionKind::slice && !in.placement.is_replicated(axis))
      error("operand lies as {}: not whole over '{}'", to_string(in.placement), axis);
    expected = after(in.placement, a.comm,
                     out.placement.dims.empty() ? DimSplit{} : out.placement.dims[a.comm.dim]);
  }
  if (out.placement != expected)
    error("result claims to lie as {}, but lies as {}", to_string(out.placement),
          to_string(expected));
  if (is_collective(a.kind)) {
    const std::vector<int> group = comm_group(in.placement, programs_.mesh, rank_, axis);
    if (a.group != group)
      error("runs among ranks {}, expected {} along '{}'", fmt::join(a.group, " "),
            fmt::join(group, " "), axis);
  }
}

void RankVerifier::check_types(const Action& a) {
  try {
    if (a.kind == ActionKind::op) check_op(a);
  } catch (const Error& e) {
    error("{}", e.what());
  }
  if (is_collective(a.kind) || a.kind == ActionKind::slice || a.kind == ActionKind::join ||
      a.kind == ActionKind::copy)
    check_comm(a);
  if (a.kind == ActionKind::fill && !info(buffer(a.out[0]).type.dtype).is_float)
    error("fills a tensor of {}", info(buffer(a.out[0]).type.dtype).name);
  if (a.kind == ActionKind::fill && a.value != 0 && !buffer(a.out[0]).placement.pending.empty())
    error("fills every term of a pending sum with {}", a.value);
  if (a.kind == ActionKind::input && !buffer(a.out[0]).placement.pending.empty())
    error("an input cannot be pending ({})", to_string(buffer(a.out[0]).placement));
  if ((a.kind == ActionKind::send || a.kind == ActionKind::recv) && a.peer == rank_)
    error("a message to itself");
  // A result lives on no pipeline rank that lacks an operand; only join() goes further.
  for (BufferId out : a.out) {
    const Placement& to = buffer(out).placement;
    if (!lives_on(to, programs_.mesh, rank_)) error("result b{} does not live here", out);
    for (BufferId in : a.in) {
      const Placement& from = buffer(in).placement;
      if (!lives_on(from, programs_.mesh, rank_)) error("operand b{} does not live here", in);
      if (a.kind == ActionKind::join || from.stages.empty()) continue;
      if (to.stages.empty() || std::any_of(to.stages.begin(), to.stages.end(), [&](int s) {
            return std::count(from.stages.begin(), from.stages.end(), s) == 0;
          }))
        error("result b{} claims pipeline ranks that lack operand b{}", out, in);
    }
  }
}

void RankVerifier::step(const Action& a) {
  if (a.kind == ActionKind::alloc) {
    State& s = states_[index(a.out[0])];
    if (s.life != Life::unborn) error("b{} is allocated twice, or a state", a.out[0]);
    s = {Life::allocated, at_, at_};
    birth(a.out[0]);
    return;
  }
  if (a.kind == ActionKind::free) {
    State& s = states_[index(a.in[0])];
    if (s.life == Life::unborn || s.life == Life::gone || buffer(a.in[0]).state)
      error("releases b{}, which is {}", a.in[0], buffer(a.in[0]).state ? "a state" : "not live");
    s = {Life::gone, s.born, at_};
    death(a.in[0]);
    return;
  }
  for (BufferId b : a.in) read(b);
  check_types(a);
  if (a.workspace != kNone) {
    if (std::count(a.in.begin(), a.in.end(), a.workspace) +
            std::count(a.out.begin(), a.out.end(), a.workspace) >
        0)
      error("uses an operand as workspace");
    write(a.workspace, false);
  }
  if (takes_operand(a.kind)) {
    if (buffer(a.in[0]).state) error("takes the state b{}", a.in[0]);
    if (states_[index(a.out[0])].life != Life::unborn)
      error("result b{} is live already", a.out[0]);
    if (buffer(a.out[0]).offset != buffer(a.in[0]).offset)
      error("result must lie at its operand's offset {}", buffer(a.in[0]).offset);
    death(a.in[0]);
    states_[index(a.in[0])] = {Life::gone, states_[index(a.in[0])].born, at_};
    birth(a.out[0]);
    states_[index(a.out[0])] = {Life::written, at_, at_};
    return;
  }
  for (BufferId b : a.out) write(b, std::count(a.in.begin(), a.in.end(), b) > 0);
  if (a.kind == ActionKind::reduce_scatter) {
    if (buffer(a.in[0]).state) error("would leave the state b{} unreadable", a.in[0]);
    states_[index(a.in[0])] = {Life::unreadable, states_[index(a.in[0])].born, at_};
  }
}

RankReport RankVerifier::run() {
  states_.assign(program_.buffers.size(), {});
  report_.arena_bytes = program_.arena_bytes;
  for (size_t i = 0; i < program_.buffers.size(); ++i)
    if (program_.buffers[i].state) {
      const Placement& p = program_.buffers[i].placement;
      if (!p.pending.empty() || !lives_on(p, programs_.mesh, rank_))
        fail("rank {} b{} '{}': a state is whole and lives where it is declared, but lies as {}",
             rank_, i, program_.buffers[i].name, to_string(p));
      states_[i].life = Life::written;
      birth(static_cast<BufferId>(i));
    }
  report_.state_bytes = live_bytes_;
  for (at_ = 0; at_ < program_.actions.size(); ++at_) {
    const Action& a = program_.actions[at_];
    step(a);
    report_.sent_bytes = checked_add(report_.sent_bytes, sent_bytes(programs_, rank_, a));
    if (is_collective(a.kind)) ++report_.collectives;
    if (a.kind == ActionKind::send) ++report_.messages;
    if (a.kind == ActionKind::input && program_.buffer(a.out[0]).bytes == 0) ++report_.empty_inputs;
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    const State& s = states_[i];
    if (program_.buffers[i].state || s.life == Life::unborn || s.life == Life::gone) continue;
    fail("{} allocates b{} '{}', last used by {}, and nothing releases it",
         describe(programs_, rank_, s.born), i, program_.buffers[i].name,
         describe(programs_, rank_, s.last));
  }
  report_.actions = static_cast<int64_t>(program_.actions.size());
  return report_;
}

// Runs all ranks' communication against bounded channels. What is blocked in the end is blocked
// under any timing: channels are first-in-first-out with one sender and one receiver.
class ChannelVerifier {
 public:
  explicit ChannelVerifier(const Programs& programs)
      : programs_(programs), meanings_(programs), at_(programs.ranks.size(), 0) {}
  Meaning run();

 private:
  const Action* current(int rank) const {
    const Program& p = programs_.ranks[static_cast<size_t>(rank)];
    const size_t i = at_[static_cast<size_t>(rank)];
    return i < p.actions.size() ? &p.actions[i] : nullptr;
  }
  std::string here(int rank) const {
    return describe(programs_, rank, at_[static_cast<size_t>(rank)]);
  }
  bool advance(int rank);
  bool collective(int rank, const Action& a);
  void match(int from, size_t sent, int rank, const Action& a) const;
  std::vector<int> waits_for(int rank) const;
  [[noreturn]] void report_cycle() const;

  struct Message {
    size_t sent;  // the action
    uint64_t meaning;
  };
  const Programs& programs_;
  MeaningTracker meanings_;
  std::vector<size_t> at_;
  std::map<std::pair<int, int>, std::deque<Message>> channels_;  // (from, to)
};

void ChannelVerifier::match(int from, size_t sent, int rank, const Action& a) const {
  const Program& sender = programs_.ranks[static_cast<size_t>(from)];
  const Buffer& out = sender.buffer(sender.actions[sent].in[0]);
  const Buffer& in = programs_.ranks[static_cast<size_t>(rank)].buffer(a.out[0]);
  const Box theirs = shard(out.type, out.placement, programs_.mesh, from);
  const Box mine = shard(in.type, in.placement, programs_.mesh, rank);
  if (!out.placement.pending.empty())
    fail("{} sends one term of a pending sum ({})", describe(programs_, from, sent),
         to_string(out.placement));
  if (theirs.begin != mine.begin)
    fail("{} sends the part that begins at [{}], but {} expects the one at [{}]",
         describe(programs_, from, sent), fmt::join(theirs.begin, ", "), here(rank),
         fmt::join(mine.begin, ", "));
  if (same_sizes(out.type, in.type) && theirs.size == mine.size &&
      without_stages(out.placement) == without_stages(in.placement))
    return;
  fail("{} sends {} {}, but {} expects {} {}", describe(programs_, from, sent), to_string(out.type),
       to_string(out.placement), here(rank), to_string(in.type), to_string(in.placement));
}

// All ranks of the group stand at the same collective, and no message between them is under way.
bool ChannelVerifier::collective(int rank, const Action& a) {
  for (int r : a.group) {
    const Action* other = current(r);
    if (other == nullptr) fail("{} waits for rank {}, whose program has ended", here(rank), r);
    if (!is_collective(other->kind) ||
        std::find(other->group.begin(), other->group.end(), rank) == other->group.end())
      return false;
  }
  const Program& mine = programs_.ranks[static_cast<size_t>(rank)];
  const Buffer& in = mine.buffer(a.in[0]);
  for (int r : a.group) {
    const Action& other = *current(r);
    const Buffer& b = programs_.ranks[static_cast<size_t>(r)].buffer(other.in[0]);
    if (other.kind != a.kind || other.group != a.group || !(other.comm == a.comm) ||
        !same_sizes(b.type, in.type) || b.placement != in.placement)
      fail("{} on {} {} meets {} on {} {}", here(rank), to_string(in.type), to_string(in.placement),
           here(r), to_string(b.type), to_string(b.placement));
    for (int to : a.group)
      if (const auto it = channels_.find({r, to}); it != channels_.end() && !it->second.empty())
        fail("{} begins while the message of {} is still on its way to rank {}", here(rank),
             describe(programs_, r, it->second.front().sent), to);
  }
  std::vector<size_t> actions;
  for (int r : a.group) actions.push_back(at_[static_cast<size_t>(r)]++);
  meanings_.collective(a.group, actions);
  return true;
}

bool ChannelVerifier::advance(int rank) {
  const Action* a = current(rank);
  if (a == nullptr) return false;
  size_t& at = at_[static_cast<size_t>(rank)];
  if (is_collective(a->kind)) return collective(rank, *a);
  if (a->kind == ActionKind::send) {
    auto& channel = channels_[{rank, a->peer}];
    if (static_cast<int>(channel.size()) >= programs_.channel_slots) return false;
    channel.push_back({at, meanings_.sent(rank, at)});
  } else if (a->kind == ActionKind::recv) {
    auto& channel = channels_[{a->peer, rank}];
    if (channel.empty()) return false;
    match(a->peer, channel.front().sent, rank, *a);
    meanings_.received(rank, at, channel.front().meaning);
    channel.pop_front();
  } else {
    meanings_.local(rank, at);
  }
  ++at;
  return true;
}

std::vector<int> ChannelVerifier::waits_for(int rank) const {
  const Action* a = current(rank);
  if (a == nullptr) return {};
  if (!is_collective(a->kind)) return {a->peer};
  std::vector<int> ranks;
  for (int r : a->group) {
    const Action* other = current(r);
    if (r != rank && (other == nullptr || !is_collective(other->kind) || other->group != a->group))
      ranks.push_back(r);
  }
  return ranks;
}

void ChannelVerifier::report_cycle() const {
  std::vector<int> path;
  for (int r = 0; r < static_cast<int>(at_.size()) && path.empty(); ++r)
    if (current(r) != nullptr) path.push_back(r);
  for (;;) {
    const int rank = path.back();
    const std::vector<int> next = waits_for(rank);
    PLAIT_CHECK(!next.empty(), "rank {} waits for nobody", rank);
    if (current(next[0]) == nullptr)
      fail("{} waits for rank {}, whose program has ended", here(rank), next[0]);
    const auto seen = std::find(path.begin(), path.end(), next[0]);
    if (seen == path.end()) {
      path.push_back(next[0]);
      continue;
    }
    std::string text = "deadlock: these wait for one another for ever:";
    for (auto it = seen; it != path.end(); ++it) text += "\n  " + here(*it);
    fail("{}", text);
  }
}

Meaning ChannelVerifier::run() {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < static_cast<int>(at_.size()); ++rank)
      while (advance(rank)) moved = true;
  }
  for (int rank = 0; rank < static_cast<int>(at_.size()); ++rank)
    if (current(rank) != nullptr) report_cycle();
  for (const auto& [ends, channel] : channels_)
    if (!channel.empty())
      fail("{} is never received by rank {}", describe(programs_, ends.first, channel.front().sent),
           ends.second);
  return meanings_.finish();
}

}  // namespace

VerifyReport verify(const Programs& programs) {
  if (static_cast<int>(programs.ranks.size()) != programs.mesh.ranks())
    fail("{} programs for the {} ranks of the mesh {}", programs.ranks.size(),
         programs.mesh.ranks(), to_string(programs.mesh));
  VerifyReport report;
  for (int rank = 0; rank < programs.mesh.ranks(); ++rank)
    report.ranks.push_back(RankVerifier(programs, rank).run());
  report.meaning = ChannelVerifier(programs).run();
  return report;
}

}  // namespace plait
