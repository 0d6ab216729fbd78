// Lifetimes and arena offsets (place_in_arena, declared in lower.h).
#include <algorithm>

#include "plait/program/lower.h"

namespace plait {

namespace {

constexpr int64_t kAlignment = 64;
int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
size_t index(BufferId id) { return static_cast<size_t>(id); }

// First fit over the live intervals of the arena.
class Arena {
 public:
  int64_t take(int64_t bytes) {
    const int64_t size = aligned(bytes);
    int64_t at = 0;
    size_t i = 0;
    while (i < live_.size() && live_[i].first - at < size) at = live_[i++].second;
    live_.insert(live_.begin() + static_cast<int64_t>(i), {at, at + size});
    high_ = std::max(high_, at + size);
    return at;
  }
  void give(int64_t offset, int64_t bytes) {
    const std::pair interval(offset, offset + aligned(bytes));
    const auto it = std::find(live_.begin(), live_.end(), interval);
    PLAIT_CHECK(it != live_.end(), "the arena has no interval at {}", offset);
    live_.erase(it);
  }
  int64_t high() const { return high_; }

 private:
  std::vector<std::pair<int64_t, int64_t>> live_;  // by offset
  int64_t high_ = 0;
};

template <class F>
void for_each_access(const Action& a, F&& f) {
  for (BufferId b : a.in) f(b);
  for (BufferId b : a.out) f(b);
  if (a.workspace != kNone) f(a.workspace);
}

std::vector<size_t> last_access(const Program& program) {
  std::vector<size_t> last(program.buffers.size(), 0);
  for (size_t i = 0; i < program.actions.size(); ++i)
    for_each_access(program.actions[i], [&](BufferId b) { last[index(b)] = i; });
  return last;
}

// An operand that is taken or left unreadable must not be read again, nor be a state.
void copy_where_needed(Program& program) {
  const std::vector<size_t> last = last_access(program);
  std::vector<Action> actions;
  for (size_t i = 0; i < program.actions.size(); ++i) {
    Action a = program.actions[i];
    const bool consumes = takes_operand(a.kind) || a.kind == ActionKind::reduce_scatter;
    if (consumes && (last[index(a.in[0])] > i || program.buffer(a.in[0]).state)) {
      Action copy;
      copy.kind = ActionKind::copy;
      copy.unit = a.unit;
      copy.in = a.in;
      Buffer b = program.buffer(a.in[0]);
      b.state = false;
      copy.out = {static_cast<BufferId>(program.buffers.size())};
      program.buffers.push_back(std::move(b));
      a.in = copy.out;
      actions.push_back(std::move(copy));
    }
    actions.push_back(std::move(a));
  }
  program.actions = std::move(actions);
}

}  // namespace

void place_in_arena(Program& program) {
  copy_where_needed(program);
  const std::vector<size_t> last = last_access(program);
  Arena arena;
  for (Buffer& b : program.buffers)
    if (b.state) b.offset = arena.take(b.bytes);
  std::vector<bool> live(program.buffers.size(), false);
  std::vector<Action> actions;
  auto add = [&](ActionKind kind, BufferId b, int32_t unit) {
    Action a;
    a.kind = kind;
    a.unit = unit;
    (kind == ActionKind::alloc ? a.out : a.in) = {b};
    actions.push_back(std::move(a));
  };
  for (size_t i = 0; i < program.actions.size(); ++i) {
    const Action& a = program.actions[i];
    const bool takes = takes_operand(a.kind);
    if (takes) {
      program.buffers[index(a.out[0])].offset = program.buffer(a.in[0]).offset;
      live[index(a.in[0])] = false;
      live[index(a.out[0])] = true;
    }
    for_each_access(a, [&](BufferId id) {
      Buffer& b = program.buffers[index(id)];
      if (b.state || live[index(id)] || (takes && id == a.in[0])) return;
      b.offset = arena.take(b.bytes);
      live[index(id)] = true;
      add(ActionKind::alloc, id, a.unit);
    });
    actions.push_back(a);
    for_each_access(a, [&](BufferId id) {
      if (program.buffer(id).state || !live[index(id)] || last[index(id)] != i) return;
      arena.give(program.buffer(id).offset, program.buffer(id).bytes);
      live[index(id)] = false;
      add(ActionKind::free, id, a.unit);
    });
  }
  program.actions = std::move(actions);
  program.arena_bytes = arena.high();
}

}  // namespace plait
