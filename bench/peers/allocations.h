// Counts what a process asks of the C library's allocator and of the system's memory map, in every
// library that it is linked with: malloc and its kin (operator new calls it), mmap, munmap, mremap.
//
//   const Allocations before = allocations();
//   ...
//   const Allocations made = allocations() - before;
//
// It stands in front of glibc by defining the same names, so it belongs into an executable that
// measures and into no library. With another C library `counts_allocations` is false, and nothing
// is counted.
#pragma once

#include <cstdint>

namespace plait::peers {

struct Allocations {
  int64_t calls = 0;  // malloc, calloc, realloc, aligned_alloc, posix_memalign, memalign
  int64_t bytes = 0;  // asked for by them
  int64_t frees = 0;  // of memory, not of null
  int64_t maps = 0;   // mmap, munmap, mremap: by others than the allocator itself
  int64_t all() const { return calls + frees + maps; }
};
inline Allocations operator-(const Allocations& a, const Allocations& b) {
  return {a.calls - b.calls, a.bytes - b.bytes, a.frees - b.frees, a.maps - b.maps};
}
inline Allocations& operator+=(Allocations& a, const Allocations& b) {
  a = {a.calls + b.calls, a.bytes + b.bytes, a.frees + b.frees, a.maps + b.maps};
  return a;
}

bool counts_allocations();
Allocations allocations();  // of all threads, since the process began

}  // namespace plait::peers
