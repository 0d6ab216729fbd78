#include "plait/exec/measure.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "plait/base/half.h"

namespace plait {

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Call {
  const Action* action = nullptr;
  const Program* program = nullptr;
  int64_t flops = 0, bytes = 0;
  double seconds = -1;         // of one call; negative: not timed
  std::vector<int64_t> count;  // by rank
};

std::vector<TensorType> local_types(const Program& p, const std::vector<BufferId>& ids) {
  std::vector<TensorType> types;
  for (const BufferId b : ids) types.push_back(p.buffer(b).local);
  return types;
}

// The attributes at the end of a printed action: from the first word with an '='.
std::string attributes(const std::string& printed) {
  const size_t operands = printed.find(" = ");
  const size_t at = operands == std::string::npos ? operands : printed.find('=', operands + 3);
  return at == std::string::npos ? "" : printed.substr(printed.rfind(' ', at));
}

std::map<std::string, Call> distinct_calls(const Programs& programs) {
  std::map<std::string, Call> calls;
  for (size_t r = 0; r < programs.ranks.size(); ++r) {
    const Program& p = programs.ranks[r];
    for (const Action& a : p.actions) {
      if (a.kind != ActionKind::op) continue;
      std::string key = print_action(p, a);
      key = fmt::format("{} {}", a.name, attributes(key));
      for (const TensorType& t : local_types(p, a.in)) key += fmt::format(" {}", to_string(t));
      Call& call = calls[key];
      if (call.action == nullptr) {
        const std::vector<TensorType> types = local_types(p, a.in);
        call.action = &a;
        call.program = &p;
        call.flops = flops_of(find_op(a.name), a.attrs, types);
        for (const auto* list : {&a.in, &a.out})
          for (const BufferId b : *list) call.bytes += p.buffer(b).bytes;
        if (a.workspace != kNone) call.bytes += p.buffer(a.workspace).bytes;
        call.count.resize(programs.ranks.size());
      }
      ++call.count[r];
    }
  }
  return calls;
}

// Tensors of one call in memory of their own, filled with harmless numbers.
class Operands {
 public:
  Operands(const Call& call, const Device& device, int threads)
      : device_(device), threads_(threads) {
    for (const BufferId b : call.action->in) in_.push_back(make(call.program->buffer(b)));
    for (const BufferId b : call.action->out) out_.push_back(make(call.program->buffer(b)));
    if (call.action->workspace != kNone)
      workspace_ = make(call.program->buffer(call.action->workspace)).data;
  }
  ~Operands() {
    for (std::byte* m : memory_) device_.release(m);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;
  KernelArgs args(const Attrs& attrs, const OpDef& op) const {
    return {&attrs, in_, out_, workspace_, threads_, &op};
  }

 private:
  TensorView make(const Buffer& b) {
    memory_.push_back(device_.allocate(b.bytes));
    TensorView v;
    v.data = memory_.back();
    v.dtype = b.type.dtype;
    v.rank = static_cast<int>(b.local.dims.size());
    PLAIT_CHECK(b.local.dims.size() <= v.dims.size(), "a tensor of {} dimensions",
                b.local.dims.size());
    for (size_t d = 0; d < b.local.dims.size(); ++d) v.dims[d] = v.global[d] = b.local.dims[d].size;
    const int64_t n = b.local.elements();
    if (v.dtype == Dtype::i32) {
      // Neighbouring slots differ, as sequences do; ids stay within any vocabulary of two.
      const int64_t unit = b.local.dims.empty() ? 1 : std::max<int64_t>(1, b.local.dims[0].unit);
      for (int64_t i = 0; i < n; ++i) v.as<int32_t>()[i] = static_cast<int32_t>(i / unit % 2);
    } else {
      dispatch_computed(v.dtype, [&]<class T>() {
        for (int64_t i = 0; i < n; ++i) v.as<T>()[i] = static_cast<T>(0.01 * (1 + i % 17));
      });
    }
    return v;
  }

  const Device& device_;
  std::vector<std::byte*> memory_;
  std::vector<TensorView> in_, out_;
  void* workspace_ = nullptr;
  int threads_;
};

// Best of a few calls; one call only if it is long.
double time_call(const Call& call, const Device& device, int threads) {
  const Operands operands(call, device, threads);
  const OpDef& op = find_op(call.action->name);
  const KernelArgs args = operands.args(call.action->attrs, op);
  const Kernel kernel = device.kernel(op, kernel_dtype(args.in, args.out));
  kernel(args);  // builds what is built once
  double best = 1e300;
  const auto begin = Clock::now();
  for (int i = 0; i < 5 && (i == 0 || since(begin) < 0.02); ++i) {
    const auto start = Clock::now();
    kernel(args);
    best = std::min(best, since(start));
  }
  return best;
}

// Those with the most work in a step first.
std::vector<Call*> by_work(std::map<std::string, Call>& calls) {
  std::vector<std::pair<double, Call*>> work;
  for (auto& [key, call] : calls) {
    int64_t count = 0;
    for (const int64_t n : call.count) count += n;
    work.emplace_back(static_cast<double>(call.flops) * static_cast<double>(count), &call);
  }
  std::stable_sort(work.begin(), work.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Call*> sorted;
  for (const auto& [flops, call] : work) sorted.push_back(call);
  return sorted;
}

}  // namespace

StepEstimate measure_step(const Programs& programs, double budget_seconds, const Device& device) {
  std::map<std::string, Call> calls = distinct_calls(programs);
  StepEstimate e;
  device.start_team({programs.threads, -1});
  const auto begin = Clock::now();
  double timed_seconds = 0, timed_flops = 0;
  e.calls = static_cast<int64_t>(calls.size());
  for (Call* call : by_work(calls)) {
    if (call->bytes > kMostBytes || since(begin) > budget_seconds) continue;
    call->seconds = time_call(*call, device, programs.threads);
    timed_seconds += call->seconds;
    timed_flops += static_cast<double>(call->flops);
    ++e.timed;
  }
  std::vector<double> ranks(programs.ranks.size());
  for (const auto& [key, call] : calls) {
    double seconds = call.seconds;
    if (seconds < 0) {
      seconds = timed_flops > 0 ? static_cast<double>(call.flops) * timed_seconds / timed_flops : 0;
      ++e.extrapolated;
    }
    for (size_t r = 0; r < ranks.size(); ++r) {
      ranks[r] += seconds * static_cast<double>(call.count[r]);
      e.flops = checked_add(e.flops, checked_mul(call.flops, call.count[r]));
    }
  }
  for (const double seconds : ranks) {
    e.rank_seconds = std::max(e.rank_seconds, seconds);
    e.total_seconds += seconds;
  }
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  e.seconds = std::max(e.rank_seconds, e.total_seconds / cores);
  return e;
}

}  // namespace plait
