#include "plait/kernels/cpu/cpu.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "plait/ir/fused.h"
#include "plait/kernels/cpu/team.h"
#include "plait/kernels/device.h"

namespace plait {

namespace {

constexpr size_t kAlignment = 64, kHugePage = 2 << 20;

// Large arenas lie on huge pages where the system has them: heads of wide tensors are read row by
// row, each row on another small page.
std::byte* allocate(int64_t bytes) {
  const bool large = static_cast<size_t>(bytes) >= 2 * kHugePage;
  const size_t alignment = large ? kHugePage : kAlignment;
  const size_t size = (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, size == 0 ? alignment : size);
  if (memory == nullptr) fail("no memory for an arena of {} bytes", bytes);
  if (large) madvise(memory, size, MADV_HUGEPAGE);  // a wish: without them it is only slower
  return static_cast<std::byte*>(memory);
}

void release(std::byte* memory) { std::free(memory); }

void copy(std::byte* to, const std::byte* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

Kernel kernel(const OpDef& op, Dtype dtype) {
  for (const FastKernel& fast : fast_kernels()) {
    if (fast.op != op.name) continue;
    if (dtype == Dtype::f32 && fast.f32 != nullptr) return fast.f32;
    if (dtype == Dtype::bf16 && fast.bf16 != nullptr) return fast.bf16;
  }
  if (op.expansion != nullptr || dtype == Dtype::bf16) return run_reference;
  return dtype == Dtype::f64 ? op.reference.f64 : op.reference.f32;
}

}  // namespace

const Device& cpu_device() {
  static constexpr Device device{"cpu", allocate, release, copy, kernel, start_team};
  return device;
}

}  // namespace plait
