#include "allocations.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>

#ifdef __GLIBC__
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

// Constant initialisation: they count from the first call on, before any constructor has run.
constinit std::atomic<int64_t> calls{0}, bytes{0}, frees{0}, maps{0};

void add(std::atomic<int64_t>& counter, int64_t n) {
  counter.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace

#ifdef __GLIBC__

namespace {

void* counted(void* memory, size_t size) {
  add(calls, 1);
  add(bytes, static_cast<int64_t>(size));
  return memory;
}

}  // namespace

// glibc's own allocator under its second names, and ours under the first.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);

void* malloc(size_t size) noexcept { return counted(__libc_malloc(size), size); }
void* calloc(size_t count, size_t size) noexcept {
  return counted(__libc_calloc(count, size), count * size);
}
void* realloc(void* memory, size_t size) noexcept {
  return counted(__libc_realloc(memory, size), size);
}
void* memalign(size_t alignment, size_t size) noexcept {
  return counted(__libc_memalign(alignment, size), size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept { return memalign(alignment, size); }
int posix_memalign(void** result, size_t alignment, size_t size) noexcept {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0)
    return EINVAL;
  void* memory = memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *result = memory;
  return 0;
}
void free(void* memory) noexcept {
  if (memory != nullptr) add(frees, 1);
  __libc_free(memory);
}

void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) noexcept {
  add(maps, 1);
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags, file, offset));
}
int munmap(void* at, size_t size) noexcept {
  add(maps, 1);
  return static_cast<int>(syscall(SYS_munmap, at, size));
}
void* mremap(void* at, size_t from, size_t to, int flags, ...) noexcept {
  add(maps, 1);
  va_list more;
  va_start(more, flags);
  void* fixed = (flags & MREMAP_FIXED) != 0 ? va_arg(more, void*) : nullptr;
  va_end(more);
  return reinterpret_cast<void*>(syscall(SYS_mremap, at, from, to, flags, fixed));
}
}

#endif

namespace plait::peers {

bool counts_allocations() {
#ifdef __GLIBC__
  return true;
#else
  return false;
#endif
}

Allocations allocations() { return {calls.load(), bytes.load(), frees.load(), maps.load()}; }

}  // namespace plait::peers
