#include "plait/report/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plait/report/profile.h"

namespace plait {

namespace {

enum Track { kCompute = 0, kCommunication = 1 };

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Microseconds, exactly.
std::string micro(int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

class Writer {
 public:
  Writer(const Programs& programs, const StepTimes& step, const Limits& limits)
      : programs_(programs), step_(step), limits_(limits), waits_(waits(programs, step.actions)) {
    bool first = true;
    for (const auto& times : step.actions)
      for (const ActionTime& t : times) {
        origin_ = first ? t.begin : std::min(origin_, t.begin);
        first = false;
      }
  }

  std::string text() {
    text_ = fmt::format("{}{},\"model\":{},\"step\":{}}},\"traceEvents\":[", kTraceHead, 1,
                        quoted(programs_.model), step_.step);
    for (size_t r = 0; r < programs_.ranks.size(); ++r) rank(static_cast<int>(r));
    return text_ + "\n]}\n";
  }

 private:
  void event(const std::string& fields) {
    text_ += first_ ? "\n{" : ",\n{";
    text_ += fields + "}";
    first_ = false;
  }
  void slice(int rank, Track track, const std::string& name, ActionTime t,
             const std::string& args) {
    event(fmt::format(R"("ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"args":{{{}}})",
                      rank, static_cast<int>(track), micro(t.begin - origin_),
                      micro(t.end - t.begin), quoted(name), args));
  }
  void name(int rank, const char* what, int track, const std::string& value) {
    event(fmt::format(R"("ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":{}}})", rank, track,
                      what, quoted(value)));
  }

  void rank(int r) {
    const Program& p = programs_.ranks[static_cast<size_t>(r)];
    const std::vector<ActionTime>& times = step_.actions[static_cast<size_t>(r)];
    name(r, "process_name", 0, fmt::format("rank {}", r));
    name(r, "thread_name", kCompute,
         fmt::format("compute, {} thread{}", programs_.threads, programs_.threads == 1 ? "" : "s"));
    name(r, "thread_name", kCommunication, "communication");
    units(r, p, times);
    for (size_t i = 0; i < p.actions.size(); ++i)
      if (is_listed(p.actions[i].kind)) action(r, p, i, times[i]);
    live_bytes(r, p, times);
  }

  // A unit goes on as long as the actions belong to it.
  void units(int r, const Program& p, const std::vector<ActionTime>& times) {
    for (size_t i = 0; i < times.size();) {
      size_t end = i + 1;
      while (end < times.size() && p.actions[end].unit == p.actions[i].unit) ++end;
      slice(r, kCompute, p.units.at(static_cast<size_t>(p.actions[i].unit)),
            {times[i].begin, times[end - 1].end}, "");
      i = end;
    }
  }

  void action(int r, const Program& p, size_t i, ActionTime t) {
    const Action& a = p.actions[i];
    const Cost c = cost_of(programs_, r, a, limits_);
    std::string args = fmt::format(R"("unit":{},"shapes":{},"action":{},"bytes":{})",
                                   quoted(p.units.at(static_cast<size_t>(a.unit))),
                                   quoted(local_shapes(p, a)), i, c.bytes);
    if (a.kind == ActionKind::op) args += fmt::format(R"(,"flops":{})", c.flops);
    const double seconds = static_cast<double>(t.end - t.begin) * 1e-9;
    if (c.seconds > 0 && seconds > 0)
      args += fmt::format(R"(,"bound by":"{}","share of limit":{:.4f})",
                          c.compute ? "flops" : "bytes", c.seconds / seconds);
    if (a.peer >= 0) args += fmt::format(R"(,"peer":{})", a.peer);
    if (!a.group.empty()) args += fmt::format(R"(,"group":[{}])", fmt::join(a.group, ","));
    const Track track = is_communication(a.kind) ? kCommunication : kCompute;
    slice(r, track, a.kind == ActionKind::op ? a.name : to_string(a.kind), t, args);
    const int64_t waited = waits_[static_cast<size_t>(r)][i];
    if (waited > 0) slice(r, track, "waiting", {t.begin, t.begin + waited}, "");
  }

  // At the end of each action that changes them.
  void live_bytes(int r, const Program& p, const std::vector<ActionTime>& times) {
    int64_t live = 0;
    for (const Buffer& b : p.buffers)
      if (b.state) live += b.bytes;
    const auto say = [&](int64_t at) {
      event(fmt::format(R"("ph":"C","pid":{},"ts":{},"name":"live bytes","args":{{"bytes":{}}})", r,
                        micro(at - origin_), live));
    };
    if (!times.empty()) say(times.front().begin);
    for (size_t i = 0; i < times.size(); ++i) {
      const Action& a = p.actions[i];
      const int64_t before = live;
      if (a.kind == ActionKind::free || takes_operand(a.kind)) live -= p.buffer(a.in[0]).bytes;
      if (a.kind == ActionKind::alloc || takes_operand(a.kind)) live += p.buffer(a.out[0]).bytes;
      if (live != before) say(times[i].end);
    }
  }

  const Programs& programs_;
  const StepTimes& step_;
  const Limits& limits_;
  const std::vector<std::vector<int64_t>> waits_;
  int64_t origin_ = 0;
  std::string text_;
  bool first_ = true;
};

}  // namespace

std::string trace_text(const Programs& programs, const StepTimes& step, const Limits& limits) {
  return Writer(programs, step, limits).text();
}

}  // namespace plait
