#include "plait/exec/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "plait/base/digest.h"
#include "plait/base/half.h"
#include "plait/exec/box.h"

namespace plait {

namespace {

int64_t element_bytes(const Buffer& b) { return dtype_bytes(b.type.dtype, 1); }

int64_t nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The box of each ring member's part: the operand of an all-gather, the result of a
// reduce-scatter.
const Buffer& part_of(const Program& program, const Action& a) {
  return program.buffer(a.kind == ActionKind::all_gather ? a.in[0] : a.out[0]);
}

}  // namespace

Executor::Executor(const Programs& programs, int rank, Transport& transport, const Device& device,
                   const SessionOptions& options)
    : programs_(programs),
      program_(programs.ranks.at(static_cast<size_t>(rank))),
      rank_(rank),
      transport_(transport),
      device_(device),
      options_(options),
      arena_(device.allocate(program_.arena_bytes), device.release) {
  for (const Buffer& b : program_.buffers) {
    if (b.offset < 0 || b.bytes < 0 || b.bytes > program_.arena_bytes - b.offset)
      fail("buffer '{}' of {} bytes at {} lies beyond the arena of {}; verify() says why", b.name,
           b.bytes, b.offset, program_.arena_bytes);
    if (!b.state) continue;
    live_bytes_ += b.bytes;
    std::memset(arena_.get() + b.offset, 0, static_cast<size_t>(b.bytes));
  }
  for (const Action& a : program_.actions) prepared_.push_back(prepare(a));
}

TensorView Executor::view(BufferId id) {
  const Buffer& b = buffer(id);
  const Box box = shard(b.type, b.placement, programs_.mesh, rank_);
  TensorView v;
  v.data = data(id);
  v.dtype = b.type.dtype;
  v.rank = static_cast<int>(box.size.size());
  PLAIT_CHECK(box.size.size() <= v.dims.size(), "a tensor of {} dimensions", box.size.size());
  std::copy(box.size.begin(), box.size.end(), v.dims.begin());
  std::copy(box.begin.begin(), box.begin.end(), v.begin.begin());
  for (size_t d = 0; d < box.size.size(); ++d) v.global[d] = b.type.dims[d].size;
  return v;
}

Executor::Prepared Executor::prepare(const Action& a) {
  Prepared p;
  if (a.kind == ActionKind::op) {
    for (BufferId b : a.in) p.in.push_back(view(b));
    for (BufferId b : a.out) p.out.push_back(view(b));
    p.op = &find_op(a.name);
    p.kernel = device_.kernel(*p.op, kernel_dtype(p.in, p.out));
  }
  if (a.kind == ActionKind::input) {
    const Buffer& b = buffer(a.out[0]);
    p.box = shard(b.type, b.placement, programs_.mesh, rank_);
    for (const Extent& e : b.type.dims) p.dims.push_back(e.size);
  }
  if (is_collective(a.kind)) {
    p.ring.ranks = a.group;
    p.ring.me =
        static_cast<size_t>(std::find(a.group.begin(), a.group.end(), rank_) - a.group.begin());
    PLAIT_CHECK(p.ring.me < a.group.size(), "rank {} is not in its own group", rank_);
  }
  if (a.kind == ActionKind::all_gather || a.kind == ActionKind::reduce_scatter ||
      a.kind == ActionKind::slice) {
    const BufferId whole = a.kind == ActionKind::all_gather ? a.out[0] : a.in[0];
    const Buffer& part = part_of(program_, a);
    const Box outer = shard(buffer(whole).type, buffer(whole).placement, programs_.mesh, rank_);
    auto block = [&](int r) {
      return block_in(data(whole), outer, shard(part.type, part.placement, programs_.mesh, r),
                      element_bytes(part));
    };
    for (const int r : a.group) p.blocks.push_back(block(r));
    p.own = block(rank_);
  }
  return p;
}

void Executor::poison(BufferId id) {
  if (options_.poison) std::memset(data(id), 0xff, static_cast<size_t>(buffer(id).bytes));
}

void Executor::born(BufferId id) {
  live_bytes_ += buffer(id).bytes;
  counters_.peak_live_bytes = std::max(counters_.peak_live_bytes, live_bytes_);
}

void Executor::gone(BufferId id) { live_bytes_ -= buffer(id).bytes; }

void Executor::fill(BufferId id, double value) {
  const Buffer& b = buffer(id);
  dispatch_computed(b.type.dtype, [&]<class T>() {
    std::fill_n(reinterpret_cast<T*>(data(id)), b.local.elements(), static_cast<T>(value));
  });
}

void Executor::run_input(const Action& a, const Prepared& p, const Batch& batch) {
  const Buffer& b = buffer(a.out[0]);
  const HostTensors* from = &batch.step;
  if (a.microbatch >= 0) {
    if (a.microbatch >= static_cast<int64_t>(batch.microbatches.size()))
      fail("the batch has {} micro-batches", batch.microbatches.size());
    from = &batch.microbatches[static_cast<size_t>(a.microbatch)];
  }
  const auto it = from->find(a.name);
  if (it == from->end()) fail("the batch has no input '{}'", a.name);
  const HostTensor& t = it->second;
  if (t.dtype != b.type.dtype || t.dims != p.dims)
    fail("input '{}' is {}[{}], expected {}", a.name, info(t.dtype).name, fmt::join(t.dims, ", "),
         to_string(b.type));
  copy_from_global(data(a.out[0]), p.box, t.data.data(), p.dims, element_bytes(b));
}

void Executor::run(const Action& a, Prepared& p, const Batch& batch) {
  switch (a.kind) {
    case ActionKind::alloc:
      born(a.out[0]);
      poison(a.out[0]);
      return;
    case ActionKind::free:
      poison(a.in[0]);
      gone(a.in[0]);
      return;
    case ActionKind::fill:
      fill(a.out[0], a.value);
      return;
    case ActionKind::input:
      run_input(a, p, batch);
      return;
    case ActionKind::op: {
      KernelArgs args;
      args.attrs = &a.attrs;
      args.in = p.in;
      args.out = p.out;
      args.workspace = a.workspace == kNone ? nullptr : data(a.workspace);
      args.threads = programs_.threads;
      args.op = p.op;
      p.kernel(args);
      return;
    }
    case ActionKind::send: {
      const int64_t bytes = buffer(a.in[0]).bytes;
      transport_.send(a.peer, {data(a.in[0]), 1, bytes, bytes});
      return;
    }
    case ActionKind::recv: {
      const int64_t bytes = buffer(a.out[0]).bytes;
      receive_into(transport_, a.peer, {data(a.out[0]), 1, bytes, bytes});
      return;
    }
    case ActionKind::all_reduce:
      gone(a.in[0]);
      born(a.out[0]);
      ring_all_reduce(transport_, p.ring, data(a.out[0]), buffer(a.out[0]).local.elements(),
                      buffer(a.out[0]).type.dtype, a.comm.reduce);
      return;
    case ActionKind::all_gather:
      for (int64_t i = 0; i < p.own.rows && p.own.row_bytes > 0; ++i)
        device_.copy(p.own.data + i * p.own.stride, data(a.in[0]) + i * p.own.row_bytes,
                     p.own.row_bytes);
      ring_all_gather(transport_, p.ring, p.blocks);
      return;
    case ActionKind::reduce_scatter:
      ring_reduce_scatter(transport_, p.ring, p.blocks, buffer(a.in[0]).type.dtype, a.comm.reduce);
      [[fallthrough]];
    case ActionKind::slice:
      for (int64_t i = 0; i < p.own.rows && p.own.row_bytes > 0; ++i)
        device_.copy(data(a.out[0]) + i * p.own.row_bytes, p.own.data + i * p.own.stride,
                     p.own.row_bytes);
      return;
    case ActionKind::join:
      gone(a.in[0]);
      born(a.out[0]);
      return;
    case ActionKind::copy:
      device_.copy(data(a.out[0]), data(a.in[0]), buffer(a.in[0]).bytes);
      return;
  }
}

// The results of an action that has just run.
void Executor::look(size_t action) {
  const Action& a = program_.actions[action];
  if (a.kind == ActionKind::alloc) return;
  for (BufferId id : a.out) {
    const Buffer& b = buffer(id);
    if (watch_.finite)
      if (auto where = find_not_finite(programs_, rank_, b, data(id))) {
        where->unit = program_.units[static_cast<size_t>(a.unit)];
        where->op = a.kind == ActionKind::op ? a.name : to_string(a.kind);
        throw_not_finite(std::move(*where), b.type, describe(programs_, rank_, action));
      }
    if (watch_.replicas)
      digests_[action].push_back(
          digest({reinterpret_cast<const char*>(data(id)), static_cast<size_t>(b.bytes)}));
  }
}

void Executor::check_states() const {
  for (BufferId id : states_read(program_))
    if (auto where = find_not_finite(programs_, rank_, buffer(id), data(id))) {
      where->unit = "before the step";
      where->op = "state";
      throw_not_finite(std::move(*where), buffer(id).type,
                       fmt::format("rank {}, before the step", rank_));
    }
}

void Executor::step(const Batch& batch) {
  const int64_t sent_before = transport_.sent_bytes();
  counters_.peak_live_bytes = live_bytes_;
  digests_.assign(watch_.replicas ? program_.actions.size() : 0, {});
  times_.resize(watch_.times ? program_.actions.size() : 0);
  int64_t before = watch_.times ? nanoseconds() : 0;
  for (size_t i = 0; i < program_.actions.size(); ++i) {
    try {
      run(program_.actions[i], prepared_[i], batch);
      if (watch_.times) {
        const int64_t now = nanoseconds();
        times_[i] = {before, now};
        before = now;
      }
    } catch (const std::exception& e) {
      fail("{}: {}", describe(programs_, rank_, i), e.what());
    }
    if (watch_.finite || watch_.replicas) look(i);
  }
  counters_.sent_bytes = transport_.sent_bytes() - sent_before;
}

ChannelPlan plan_channels(const Programs& programs) {
  ChannelPlan plan;
  auto need = [&](int from, int to, int64_t bytes) {
    int64_t& largest = plan[{from, to}];
    largest = std::max(largest, bytes);
  };
  for (int rank = 0; rank < static_cast<int>(programs.ranks.size()); ++rank) {
    const Program& program = programs.ranks[static_cast<size_t>(rank)];
    for (const Action& a : program.actions) {
      if (a.kind == ActionKind::send) need(rank, a.peer, program.buffer(a.in[0]).bytes);
      if (!is_collective(a.kind) || a.group.size() < 2) continue;
      const auto me = std::find(a.group.begin(), a.group.end(), rank) - a.group.begin();
      const int next = a.group[static_cast<size_t>(me + 1) % a.group.size()];
      int64_t largest = 0;
      if (a.kind == ActionKind::all_reduce) {
        const Buffer& b = program.buffer(a.in[0]);
        const auto [begin, end] =
            ring_chunk(b.local.elements(), static_cast<int64_t>(a.group.size()), 0);
        largest = dtype_bytes(b.type.dtype, end - begin);
      } else {
        const Buffer& part = part_of(program, a);
        for (const int r : a.group)
          largest =
              std::max(largest, local_type(part.type, part.placement, programs.mesh, r).bytes());
      }
      need(rank, next, largest);
    }
  }
  return plan;
}

}  // namespace plait
