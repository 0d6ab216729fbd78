// Mutation mode: one fault at a time in the communication or the computation of verified programs.
// A mutant counts as caught by the verifier if it is refused, and as caught by numbers if, run
// without the verifier, it stops with an error or gives anything but the reference's values.
#include <algorithm>

#include "harness.h"
#include "plait/base/rng.h"
#include "plait/program/verify.h"

namespace plait {

namespace {

struct Place {
  int rank;
  size_t action;
};

// One communication as all its ranks see it: a collective, or a send and its receive.
struct Event {
  bool collective = false;
  std::vector<Place> at;
};

std::vector<Event> find_events(const Programs& programs) {
  std::map<std::string, Event> events;
  for (int rank = 0; rank < static_cast<int>(programs.ranks.size()); ++rank) {
    std::map<std::string, int> seen;
    const Program& p = programs.ranks[static_cast<size_t>(rank)];
    for (size_t i = 0; i < p.actions.size(); ++i) {
      const Action& a = p.actions[i];
      std::string key;
      if (is_collective(a.kind)) key = fmt::format("c {}", fmt::join(a.group, " "));
      if (a.kind == ActionKind::send) key = fmt::format("m {} {}", rank, a.peer);
      if (a.kind == ActionKind::recv) key = fmt::format("m {} {}", a.peer, rank);
      if (key.empty()) continue;
      Event& e = events[fmt::format("{} #{:06}", key, seen[key]++)];
      e.collective = is_collective(a.kind);
      e.at.push_back({rank, i});
    }
  }
  std::vector<Event> list;
  for (auto& [key, e] : events) list.push_back(std::move(e));
  return list;
}

Program& program(Programs& p, const Place& at) { return p.ranks[static_cast<size_t>(at.rank)]; }
Action& action(Programs& p, const Place& at) { return program(p, at).actions[at.action]; }

void rename_after(Program& p, size_t from, BufferId old_id, BufferId new_id) {
  for (size_t i = from; i < p.actions.size(); ++i) {
    Action& a = p.actions[i];
    std::replace(a.in.begin(), a.in.end(), old_id, new_id);
    std::replace(a.out.begin(), a.out.end(), old_id, new_id);
  }
}

// The communication does not happen. Where it took its operand the operand lives on instead.
void remove(Programs& p, const Place& at) {
  const Action a = action(p, at);
  program(p, at).actions.erase(program(p, at).actions.begin() + static_cast<int64_t>(at.action));
  if (a.kind == ActionKind::all_reduce) rename_after(program(p, at), at.action, a.out[0], a.in[0]);
}

// It does not happen, and the result is passed off as whole.
void pretend(Programs& p, const Place& at) {
  const Action a = action(p, at);
  remove(p, at);
  if (a.kind == ActionKind::all_reduce)
    program(p, at).buffers[static_cast<size_t>(a.in[0])].placement =
        program(p, at).buffer(a.out[0]).placement;
}

void duplicate(Programs& p, const Place& at) {
  Action again = action(p, at);
  Program& prog = program(p, at);
  const auto next = static_cast<int64_t>(at.action) + 1;
  if (takes_operand(again.kind)) {
    const BufferId first = again.out[0];
    const auto second = static_cast<BufferId>(prog.buffers.size());
    prog.buffers.push_back(prog.buffer(first));
    rename_after(prog, at.action + 1, first, second);
    again.in = {first};
    again.out = {second};
  }
  prog.actions.insert(prog.actions.begin() + next, again);
}

// The group of another axis, or oneself alone.
void regroup(Programs& p, const Place& at, const std::string& axis) {
  Action& a = action(p, at);
  a.group = axis.empty() ? std::vector<int>{at.rank} : p.mesh.group(at.rank, axis);
}

struct Mutation {
  std::string kind;
  std::function<bool(Programs&, const std::vector<Event>&, size_t)> apply;  // false: not possible
};

template <class F>
auto everywhere(F f) {
  return [f](Programs& p, const std::vector<Event>& events, size_t i) {
    for (const Place& at : events[i].at) f(p, at);
    return true;
  };
}

// The next message on the same channel, if there is one: events of a channel stand together.
const Event* next_message(const Programs& p, const std::vector<Event>& events, size_t i) {
  if (events[i].collective || i + 1 >= events.size() || events[i + 1].collective) return nullptr;
  const Event &a = events[i], &b = events[i + 1];
  for (size_t k = 0; k < 2; ++k) {
    const Action& x = p.ranks[static_cast<size_t>(a.at[k].rank)].actions[a.at[k].action];
    if (a.at[k].rank != b.at[k].rank) return nullptr;
    const Action& y = p.ranks[static_cast<size_t>(b.at[k].rank)].actions[b.at[k].action];
    if (x.kind != y.kind || x.peer != y.peer) return nullptr;
  }
  return &events[i + 1];
}

std::vector<Mutation> collective_mutations() {
  return {
      {"collective deleted", everywhere(remove)},
      {"collective deleted on one rank",
       [](Programs& p, const std::vector<Event>& e, size_t i) {
         remove(p, e[i].at.back());
         return e[i].at.size() > 1;
       }},
      {"collective deleted, result passed off as whole", everywhere(pretend)},
      {"collective doubled", everywhere(duplicate)},
      {"collective over another axis",
       [](Programs& p, const std::vector<Event>& e, size_t i) {
         const std::string own = action(p, e[i].at[0]).comm.axis;
         for (const Axis& a : p.mesh.axes())
           if (a.name != own && a.size > 1) {
             for (const Place& at : e[i].at) regroup(p, at, a.name);
             return true;
           }
         return false;
       }},
      {"collective among oneself alone",
       everywhere([](Programs& p, const Place& at) { regroup(p, at, ""); })},
      {"sum taken as maximum",
       [](Programs& p, const std::vector<Event>& e, size_t i) {
         if (action(p, e[i].at[0]).kind == ActionKind::all_gather ||
             action(p, e[i].at[0]).comm.reduce != Reduce::sum)
           return false;
         for (const Place& at : e[i].at) action(p, at).comm.reduce = Reduce::max;
         return true;
       }},
  };
}

std::vector<Mutation> message_mutations() {
  return {
      {"message deleted", everywhere(remove)},
      {"send deleted",
       [](Programs& p, const std::vector<Event>& e, size_t i) {
         for (const Place& at : e[i].at)
           if (action(p, at).kind == ActionKind::send) {
             remove(p, at);
             break;
           }
         return true;
       }},
      {"message doubled", everywhere(duplicate)},
      {"message to another rank",
       [](Programs& p, const std::vector<Event>& e, size_t i) {
         for (const Place& at : e[i].at) {
           Action& a = action(p, at);
           if (a.kind != ActionKind::send || p.mesh.ranks() < 3) continue;
           do a.peer = (a.peer + 1) % p.mesh.ranks();
           while (a.peer == at.rank);
           return true;
         }
         return false;
       }},
      {"two messages swapped",
       [](Programs& p, const std::vector<Event>& e, size_t i) {
         const Event* next = next_message(p, e, i);
         if (next == nullptr) return false;
         for (size_t k = 0; k < 2; ++k)
           if (action(p, e[i].at[k]).kind == ActionKind::recv)
             std::swap(action(p, e[i].at[k]).out, action(p, next->at[k]).out);
         return true;
       }},
  };
}

bool sends_split_over(const Programs& p, const std::string& axis) {
  for (const Program& program : p.ranks)
    for (const Action& a : program.actions)
      if (a.kind == ActionKind::send && program.buffer(a.in[0]).placement.is_split(axis))
        return true;
  return false;
}

// Every message goes to the next rank along an axis that splits what is sent, at both ends. (Along
// an axis that does not, ranks hold the same tensor, and it would be the same program.)
bool reroute(Programs& p) {
  for (const Axis& axis : p.mesh.axes()) {
    if (axis.size < 2 || !sends_split_over(p, axis.name)) continue;
    bool any = false;
    for (Program& program : p.ranks)
      for (Action& a : program.actions) {
        const bool send = a.kind == ActionKind::send;
        if (!send && a.kind != ActionKind::recv) continue;
        const int step = send ? 1 : axis.size - 1;
        a.peer = p.mesh.neighbour(a.peer, axis.name,
                                  (p.mesh.coordinate(a.peer, axis.name) + step) % axis.size);
        any = true;
      }
    return any;
  }
  return false;
}

// Faults in what is computed, on one rank or on all: communication stays as it is.
using ActionTest = std::function<bool(const Program&, const Action&)>;
using ActionChange = std::function<void(Program&, size_t)>;

bool change_actions(Programs& p, uint64_t bits, bool all_ranks, const ActionTest& test,
                    const ActionChange& change) {
  // The n-th fitting action of a rank; on all ranks, the n-th of each that has as many.
  const size_t first = bits % p.ranks.size();
  size_t fitting = 0;
  for (const Action& a : p.ranks[first].actions) fitting += test(p.ranks[first], a) ? 1 : 0;
  if (fitting == 0) return false;
  const size_t n = (bits >> 8) % fitting;
  for (size_t r = 0; r < p.ranks.size(); ++r) {
    if (!all_ranks && r != first) continue;
    size_t seen = 0;
    for (size_t i = 0; i < p.ranks[r].actions.size(); ++i)
      if (test(p.ranks[r], p.ranks[r].actions[i]) && seen++ == n) {
        change(p.ranks[r], i);
        break;
      }
  }
  return true;
}

bool is_op(const Action& a, std::string_view name) {
  return a.kind == ActionKind::op && a.name == name;
}

void erase(Program& p, size_t i) { p.actions.erase(p.actions.begin() + static_cast<int64_t>(i)); }

// Another buffer of the operand's type and placement that is written and alive at this action.
BufferId twin_of(const Program& p, size_t at, BufferId operand) {
  const Buffer& wanted = p.buffer(operand);
  std::vector<bool> alive(p.buffers.size(), false);
  for (size_t i = 0; i < at; ++i) {
    const Action& a = p.actions[i];
    for (BufferId b : a.out) alive[static_cast<size_t>(b)] = a.kind != ActionKind::alloc;
    if (a.kind == ActionKind::free || takes_operand(a.kind))
      alive[static_cast<size_t>(a.in[0])] = false;
  }
  for (size_t b = 0; b < p.buffers.size(); ++b)
    if (alive[b] && static_cast<BufferId>(b) != operand && p.buffers[b].type == wanted.type &&
        p.buffers[b].placement == wanted.placement)
      return static_cast<BufferId>(b);
  return kNone;
}

struct ComputeMutation {
  std::string kind;
  ActionTest test;
  ActionChange change;
};

std::vector<ComputeMutation> compute_mutations() {
  auto accumulate = [](const Program&, const Action& a) { return is_op(a, "accumulate"); };
  return {
      {"accumulation deleted", accumulate, erase},
      {"accumulation doubled", accumulate,
       [](Program& p, size_t i) {
         const Action again = p.actions[i];
         p.actions.insert(p.actions.begin() + static_cast<int64_t>(i), again);
       }},
      {"update deleted", [](const Program&, const Action& a) { return is_op(a, "sgd"); }, erase},
      {"input of another micro-batch",
       [](const Program&, const Action& a) {
         return a.kind == ActionKind::input && a.microbatch > 0;
       },
       [](Program& p, size_t i) { p.actions[i].microbatch -= 1; }},
      {"loss gradient of 2",
       [](const Program&, const Action& a) { return a.kind == ActionKind::fill && a.value == 1; },
       [](Program& p, size_t i) { p.actions[i].value = 2; }},
      {"operand exchanged for another of its type",
       [](const Program& p, const Action& a) {
         return a.kind == ActionKind::op &&
                twin_of(p, static_cast<size_t>(&a - p.actions.data()), a.in[0]) != kNone;
       },
       [](Program& p, size_t i) { p.actions[i].in[0] = twin_of(p, i, p.actions[i].in[0]); }},
  };
}

// Plants one of them; what it is, or empty when it is not possible here.
std::string mutate_compute(Programs& p, uint64_t bits) {
  const std::vector<ComputeMutation> all = compute_mutations();
  const size_t which = bits % (all.size() + 1);
  if (which == all.size()) return reroute(p) ? "messages rerouted along another axis" : "";
  const bool everywhere = (bits >> 16) % 2 == 0;
  if (!change_actions(p, bits >> 20, everywhere, all[which].test, all[which].change)) return "";
  return all[which].kind + (everywhere ? ", all ranks" : ", one rank");
}

}  // namespace

void plant_mutants(const Case& c, int most, MutantTally& tally) {
  const Truth truth = make_truth(c);
  const Programs programs = lower(truth.model, c.plan, harness_options()).programs;
  const std::vector<Event> events = find_events(programs);
  SessionOptions options;
  options.poison = true;
  options.limit_seconds = 0.5;
  options.trust = true;
  for (int n = 0; n < most; ++n) {
    const uint64_t bits = random_bits(c.seed, Stream::test, static_cast<uint64_t>(n), 3);
    const size_t at = events.empty() ? 0 : bits % events.size();
    Programs mutant = programs;
    std::string kind;
    if (n % 2 == 0 && !events.empty()) {
      const auto mutations = events[at].collective ? collective_mutations() : message_mutations();
      const Mutation& mutation = mutations[(bits >> 32) % mutations.size()];
      if (mutation.apply(mutant, events, at)) kind = mutation.kind;
    } else {
      kind = mutate_compute(mutant, bits >> 7);
    }
    if (kind.empty()) continue;
    for (int r = 0; r < mutant.mesh.ranks(); ++r)
      derive_buffers(mutant.ranks[static_cast<size_t>(r)], mutant.mesh, r);
    auto& [planted, verifier, numbers, survived] = tally.by_kind[kind];
    ++planted;
    bool refused = false, wrong = false;
    try {
      verify(mutant);
    } catch (const Error&) {
      refused = true;
    }
    wrong = !compare_step(mutant, truth, options).empty();
    verifier += refused ? 1 : 0;
    numbers += wrong ? 1 : 0;
    if (refused || wrong) continue;
    ++survived;
    const Place where = events.empty() ? Place{0, 0} : events[at].at[0];
    tally.survivors.push_back(
        fmt::format("case {} mutant {}: {} (communication, if it was one: {})", c.seed, n, kind,
                    describe(programs, where.rank, where.action)));
  }
}

}  // namespace plait
