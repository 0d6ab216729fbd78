#include "plait/comm/collectives.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "plait/base/half.h"

namespace plait {

namespace {

template <class T>
T combine(T a, T b, Reduce reduce) {
  if (reduce == Reduce::sum) return a + b;
  const T high = std::max(a, b);
  if (reduce == Reduce::max || high == -std::numeric_limits<T>::infinity()) return high;
  return high + std::log(std::exp(a - high) + std::exp(b - high));
}

template <class T>
struct ReduceInto {
  using Wide = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;
  const Strided& to;
  Reduce reduce;
  static void take(void* self, const std::byte* data) {
    const auto& [to, reduce] = *static_cast<ReduceInto*>(self);
    const int64_t n = to.row_bytes / static_cast<int64_t>(sizeof(T));
    for (int64_t row = 0; row < to.rows; ++row) {
      T* target = reinterpret_cast<T*>(to.data + row * to.stride);
      const T* source = reinterpret_cast<const T*>(data + row * to.row_bytes);
      if (reduce == Reduce::sum) {
        for (int64_t i = 0; i < n; ++i) target[i] = T(Wide(target[i]) + Wide(source[i]));
      } else {
        for (int64_t i = 0; i < n; ++i)
          target[i] = T(combine(Wide(target[i]), Wide(source[i]), reduce));
      }
    }
  }
};

void receive_reduce(Transport& transport, int from, const Strided& target, Dtype dtype,
                    Reduce reduce) {
  dispatch_computed(dtype, [&]<class T>() {
    ReduceInto<T> into{target, reduce};
    transport.receive(from, target.bytes(), {ReduceInto<T>::take, &into});
  });
}

}  // namespace

std::pair<int64_t, int64_t> ring_chunk(int64_t elements, int64_t n, int64_t i) {
  const int64_t begin = i * (elements / n) + std::min(i, elements % n);
  return {begin, begin + elements / n + (i < elements % n ? 1 : 0)};
}

void ring_all_reduce(Transport& transport, const Ring& ring, std::byte* data, int64_t elements,
                     Dtype dtype, Reduce reduce) {
  const size_t n = ring.ranks.size();
  auto chunk = [&](size_t i) {
    const auto [begin, end] =
        ring_chunk(elements, static_cast<int64_t>(n), static_cast<int64_t>(i % n));
    return Strided{data + dtype_bytes(dtype, begin), 1, dtype_bytes(dtype, end - begin), 0};
  };
  for (size_t s = 0; s + 1 < n; ++s) {
    transport.send(ring.next(), chunk(ring.me + n - s));
    receive_reduce(transport, ring.previous(), chunk(ring.me + n - s - 1), dtype, reduce);
  }
  for (size_t s = 0; s + 1 < n; ++s) {
    transport.send(ring.next(), chunk(ring.me + n + 1 - s));
    receive_into(transport, ring.previous(), chunk(ring.me + n - s));
  }
}

void ring_all_gather(Transport& transport, const Ring& ring, const std::vector<Strided>& blocks) {
  const size_t n = ring.ranks.size();
  for (size_t s = 0; s + 1 < n; ++s) {
    transport.send(ring.next(), blocks[(ring.me + n - s) % n]);
    receive_into(transport, ring.previous(), blocks[(ring.me + n - s - 1) % n]);
  }
}

void ring_reduce_scatter(Transport& transport, const Ring& ring, const std::vector<Strided>& blocks,
                         Dtype dtype, Reduce reduce) {
  const size_t n = ring.ranks.size();
  for (size_t s = 0; s + 1 < n; ++s) {
    transport.send(ring.next(), blocks[(ring.me + 2 * n - s - 1) % n]);
    receive_reduce(transport, ring.previous(), blocks[(ring.me + 2 * n - s - 2) % n], dtype,
                   reduce);
  }
}

}  // namespace plait
