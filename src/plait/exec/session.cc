#include "plait/exec/session.h"

#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "plait/exec/box.h"
#include "plait/exec/executor.h"
#include "plait/kernels/cpu/team.h"

namespace plait {

namespace {

// One thread per rank, kept between steps; run() hands all of them the same job.
class RankThreads {
 public:
  RankThreads(int ranks, const std::function<void(int)>& at_start) {
    for (int r = 0; r < ranks; ++r)
      threads_.emplace_back([this, r, at_start] {
        at_start(r);
        work(r);
      });
  }
  ~RankThreads() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  void run(const std::function<void(int)>& job) {
    std::unique_lock lock(mutex_);
    job_ = &job;
    ++round_;
    running_ = threads_.size();
    changed_.notify_all();
    changed_.wait(lock, [&] { return running_ == 0; });
  }

 private:
  void work(int rank) {
    int64_t done = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || round_ != done; });
      if (stop_) return;
      done = round_;
      const auto* job = job_;
      lock.unlock();
      (*job)(rank);
      lock.lock();
      if (--running_ == 0) changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(int)>* job_ = nullptr;
  int64_t round_ = 0;
  size_t running_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

std::vector<int64_t> dims_of(const TensorType& type) {
  std::vector<int64_t> dims;
  for (const Extent& e : type.dims) dims.push_back(e.size);
  return dims;
}

}  // namespace

struct Session::Impl {
  Programs programs;
  SessionOptions options;
  VerifyReport report;
  LocalWorld world;
  std::vector<std::unique_ptr<Executor>> ranks;
  std::vector<RankCounters> counters;
  std::unique_ptr<RankThreads> threads;
  std::vector<std::vector<int>> cores;
  bool failed = false;
  Watch watching;

  Impl(Programs p, const SessionOptions& o)
      : programs(std::move(p)),
        options(o),
        report(o.trust ? VerifyReport{} : verify(programs)),
        world(static_cast<int>(programs.ranks.size()), plan_channels(programs),
              programs.channel_slots, o.limit_seconds),
        counters(programs.ranks.size()) {
    const int n = static_cast<int>(programs.ranks.size());
    const Device& device = o.device == nullptr ? cpu_device() : *o.device;
    for (int r = 0; r < n; ++r)
      ranks.push_back(std::make_unique<Executor>(programs, r, world.transport(r), device, options));
    const int compute = programs.threads;
    const bool pin = o.pin && n * compute <= static_cast<int>(std::thread::hardware_concurrency());
    threads = std::make_unique<RankThreads>(n, [&device, compute, pin](int rank) {
      device.start_team({compute, pin ? rank * compute : -1});
    });
    cores.resize(programs.ranks.size());
    if (!pin) return;
    threads->run([&](int rank) { cores[static_cast<size_t>(rank)] = team_cores(compute); });
  }

  // Calls f(rank, buffer id, buffer) for every state with the prefix.
  template <class F>
  void for_each_state(const std::string& prefix, F&& f) const {
    for (size_t r = 0; r < programs.ranks.size(); ++r)
      for (size_t b = 0; b < programs.ranks[r].buffers.size(); ++b) {
        const Buffer& buffer = programs.ranks[r].buffers[b];
        if (buffer.state && buffer.name.starts_with(prefix))
          f(static_cast<int>(r), static_cast<BufferId>(b), buffer);
      }
  }
};

Session::Session(Programs programs, const SessionOptions& options)
    : impl_(std::make_unique<Impl>(std::move(programs), options)) {}
Session::~Session() = default;

const Programs& Session::programs() const { return impl_->programs; }
const VerifyReport& Session::report() const { return impl_->report; }
uint64_t Session::digest() const { return plait::digest(impl_->programs); }
const std::vector<RankCounters>& Session::counters() const { return impl_->counters; }

const std::vector<std::vector<int>>& Session::cores() const { return impl_->cores; }

std::vector<std::vector<ActionTime>> Session::times() const {
  std::vector<std::vector<ActionTime>> times;
  for (const auto& executor : impl_->ranks) times.push_back(executor->times());
  return times;
}

void Session::set_states(const std::string& prefix, const HostTensors& tensors) {
  std::map<std::string, bool> used;
  for (const auto& [name, tensor] : tensors) used[name] = false;
  impl_->for_each_state(prefix, [&](int rank, BufferId id, const Buffer& b) {
    const std::string name = b.name.substr(prefix.size());
    const auto it = tensors.find(name);
    if (it == tensors.end()) fail("state '{}' has no tensor '{}' to be set from", b.name, name);
    const HostTensor& t = it->second;
    if (t.dtype != b.type.dtype || t.dims != dims_of(b.type))
      fail("state '{}' is {}, the tensor given is {}[{}]", b.name, to_string(b.type),
           info(t.dtype).name, fmt::join(t.dims, ", "));
    used[name] = true;
    copy_from_global(impl_->ranks[static_cast<size_t>(rank)]->data(id),
                     shard(b.type, b.placement, impl_->programs.mesh, rank), t.data.data(), t.dims,
                     dtype_bytes(t.dtype, 1));
  });
  for (const auto& [name, was_used] : used)
    if (!was_used) fail("tensor '{}' is no state '{}{}' of the programs", name, prefix, name);
}

HostTensors Session::gather(const std::string& prefix) const {
  HostTensors result;
  impl_->for_each_state(prefix, [&](int rank, BufferId id, const Buffer& b) {
    const auto [it, fresh] =
        result.try_emplace(b.name.substr(prefix.size()), b.type.dtype, dims_of(b.type));
    HostTensor& t = it->second;
    copy_to_global(impl_->ranks[static_cast<size_t>(rank)]->data(id),
                   shard(b.type, b.placement, impl_->programs.mesh, rank), t.data.data(), t.dims,
                   dtype_bytes(t.dtype, 1));
  });
  return result;
}

void Session::check_replicas(const std::string& prefix) const {
  const HostTensors whole = gather(prefix);
  impl_->for_each_state(prefix, [&](int rank, BufferId id, const Buffer& b) {
    const HostTensor& t = whole.at(b.name.substr(prefix.size()));
    std::vector<std::byte> expected(static_cast<size_t>(b.bytes));
    copy_from_global(expected.data(), shard(b.type, b.placement, impl_->programs.mesh, rank),
                     t.data.data(), t.dims, dtype_bytes(t.dtype, 1));
    const std::byte* found = impl_->ranks[static_cast<size_t>(rank)]->data(id);
    if (!expected.empty() && std::memcmp(expected.data(), found, expected.size()) != 0)
      fail("state '{}': the part of rank {} differs in bits from its replicas", b.name, rank);
  });
}

double Session::scalar(const std::string& state, int rank) const {
  const Program& program = impl_->programs.ranks.at(static_cast<size_t>(rank));
  const BufferId id = program.find_state(state);
  if (id == kNone) fail("rank {} has no state '{}'", rank, state);
  const std::byte* data = impl_->ranks[static_cast<size_t>(rank)]->data(id);
  return dispatch_float(program.buffer(id).type.dtype, [&]<class T>() {
    T value;
    std::memcpy(&value, data, sizeof value);
    return static_cast<double>(value);
  });
}

void Session::watch(const Watch& what) {
  impl_->watching = what;
  for (const auto& executor : impl_->ranks) executor->watch(what);
}

void Session::step(const Batch& batch) {
  if (impl_->failed) fail("this session has stopped after an error");
  if (impl_->watching.finite)
    for (const auto& executor : impl_->ranks) executor->check_states();
  std::mutex mutex;
  std::exception_ptr first;
  const auto one_rank = [&](int rank) {
    Executor& executor = *impl_->ranks[static_cast<size_t>(rank)];
    try {
      executor.step(batch);
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex);
      if (!impl_->world.aborted()) first = std::current_exception();  // later ones only follow
      impl_->world.abort();
    }
    impl_->counters[static_cast<size_t>(rank)] = executor.counters();
  };
  impl_->threads->run(std::cref(one_rank));  // by reference: nothing is allocated
  if (first) {
    impl_->failed = true;
    std::rethrow_exception(first);
  }
  if (!impl_->watching.replicas) return;
  std::vector<ResultDigests> digests;
  for (const auto& executor : impl_->ranks) digests.push_back(executor->digests());
  compare_replicas(impl_->programs, digests);
}

}  // namespace plait
