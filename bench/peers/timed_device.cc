#include "timed_device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace plait::peers {

namespace {

// A kernel is a plain function and carries nothing, so each wrapped one needs a function of its
// own: wrappers[i] calls slots[i].kernel.
constexpr size_t kMost = 192;

struct Slot {
  Kernel kernel = nullptr;
  KernelTime time;
};
std::array<Slot, kMost> slots;
size_t used = 0;

template <size_t I>
void timed(const KernelArgs& args) {
  using Clock = std::chrono::steady_clock;
  Slot& slot = slots[I];
  const Allocations before = allocations();
  const auto begin = Clock::now();
  slot.kernel(args);
  slot.time.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  slot.time.made += allocations() - before;
  ++slot.time.calls;
}

template <size_t... I>
constexpr std::array<Kernel, kMost> make_wrappers(std::index_sequence<I...>) {
  return {timed<I>...};
}
constexpr std::array<Kernel, kMost> wrappers = make_wrappers(std::make_index_sequence<kMost>());

Kernel wrapped(const OpDef& op, Dtype dtype) {
  const Kernel kernel = cpu_device().kernel(op, dtype);
  for (size_t i = 0; i < used; ++i)
    if (slots[i].kernel == kernel && slots[i].time.op == op.name) return wrappers[i];
  if (used == kMost) fail("more than {} kernels to time; raise kMost in timed_device.cc", kMost);
  slots[used].kernel = kernel;
  slots[used].time.op = op.name;
  return wrappers[used++];
}

}  // namespace

const Device& timed_device() {
  static const Device device = [] {
    Device d = cpu_device();
    d.kernel = wrapped;
    return d;
  }();
  return device;
}

void reset_kernel_times() {
  for (size_t i = 0; i < used; ++i) slots[i].time = {slots[i].time.op, 0, 0, {}};
}

std::vector<KernelTime> kernel_times() {
  std::vector<KernelTime> times;
  for (size_t i = 0; i < used; ++i)
    if (slots[i].time.calls > 0) times.push_back(slots[i].time);
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return times;
}

}  // namespace plait::peers
