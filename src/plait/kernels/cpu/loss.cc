// The head's ops: log-sum-exp of rows and picks by label, with their gradients.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/loss.cc"
#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"
#include "plait/kernels/cpu/kernels.h"
#include "plait/kernels/cpu/math-inl.h"
#include "plait/ops/ops.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The largest of n values, NaN left out; -infinity for none.
template <class T>
HWY_INLINE float largest(const T* x, int64_t n) {
  VF a = set(kLowest), b = a;
  const auto larger = [](VF top, VF v) HWY_ATTR { return hn::IfThenElse(hn::Gt(v, top), v, top); };
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = larger(a, load(x + i));
    b = larger(b, load(x + i + kLanes));
  }
  walk(i, n, [&](auto io, int64_t j) HWY_ATTR {
    a = larger(a, io.or_else(io.load(x + j), set(kLowest)));
  });
  return hn::GetLane(hn::MaxOfLanes(F32(), larger(a, b)));
}

// A row is read once: so many values at a time, which stay in the first cache for the second look.
constexpr int64_t kChunk = 2048;

template <class T>
HWY_INLINE float log_sum_exp(const T* x, int64_t n) {
  float top = kLowest, sum = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const T* chunk = x + begin;
    const int64_t size = std::min(kChunk, n - begin);
    const float old = top;
    top = std::max(top, largest(chunk, size));
    const float base = top == kLowest ? 0 : top;  // infinities do not meet
    if (top != old) sum *= std::exp(old - base);
    const VF from = set(base);
    sum += total(size, [=](auto io, int64_t i, VF s) HWY_ATTR {
      hwy::Prefetch(chunk + i + kChunk);  // the next one
      const VF e = exp_small(hn::Sub(io.load(chunk + i), from));
      return hn::Add(s, io.or_else(e, zero()));
    });
  }
  return top == kLowest ? top : top + std::log(sum);
}

void row_lse(const KernelArgs& args) {
  const int64_t v = args.in[0].dims[1];
  float* y = wide(args.out[0]);
  by_storage(args.in[0], [&](auto* x) HWY_ATTR {
    for_rows(args.threads, args.in[0].dims[0], v,
             [=](int64_t t) HWY_ATTR { y[t] = log_sum_exp(x + t * v, v); });
  });
}

// dx = g exp(x - lse)
void lse_grad(const KernelArgs& args) {
  const int64_t v = args.in[0].dims[1];
  const float *lse = wide(args.in[1]), *g = wide(args.in[2]);
  const bool stream = streams(args.out[0]);
  same_storage({&args.in[0], &args.out[0]});
  by_storage(args.in[0], [&](auto* first) HWY_ATTR {
    auto* first_dx = args.out[0].as<std::remove_pointer_t<decltype(first)>>();
    for_rows(args.threads, args.in[0].dims[0], v, [=](int64_t t) HWY_ATTR {
      const auto* x = first + t * v;
      auto* dx = first_dx + t * v;
      const VF from = set(lse[t]), by = set(g[t]);
      walk(0, v, stream, dx, [=](auto io, int64_t j) HWY_ATTR {
        io.store(hn::Mul(by, exp(hn::Sub(io.load(x + j), from))), dx + j);
      });
    });
  });
}

// Throws at the first label that is none: before the team starts, whose work must not throw.
inline void check_labels(std::string_view op, const TensorView& x, const TensorView& labels) {
  for (int64_t t = 0; t < x.dims[0]; ++t)
    check_id(op, labels.as<int32_t>()[t], labels.begin[0] + t, x.global[1]);
}

void pick(const KernelArgs& args) {
  const TensorView &in = args.in[0], &labels = args.in[1];
  check_labels("pick", in, labels);
  float* y = wide(args.out[0]);
  const int32_t* ids = labels.as<int32_t>();
  const int64_t v = in.dims[1], begin = in.begin[1];
  by_storage(in, [&](auto* x) HWY_ATTR {
    parallel_for(args.threads, in.dims[0], 1024, [&](int64_t first, int64_t end) HWY_ATTR {
      for (int64_t t = first; t < end; ++t) {
        const int64_t column = ids[t] - begin;
        y[t] = column >= 0 && column < v ? hn::GetLane(Rest{1}.load(x + t * v + column)) : 0;
      }
    });
  });
}

// The rows are zeros but for one value each.
void pick_grad(const KernelArgs& args) {
  const TensorView &in = args.in[0], &labels = args.in[1], &out = args.out[0];
  check_labels("pick_grad", in, labels);
  const float* g = wide(args.in[2]);
  const int32_t* ids = labels.as<int32_t>();
  const int64_t v = in.dims[1], begin = in.begin[1];
  const bool stream = streams(out);
  by_storage(out, [&](auto* dx) HWY_ATTR {
    for_rows(args.threads, in.dims[0], v, [=](int64_t t) HWY_ATTR {
      auto* row = dx + t * v;
      const int64_t column = ids[t] - begin;
      const bool here = column >= 0 && column < v;
      const auto zeros = [=](auto io, int64_t j) HWY_ATTR { io.store(zero(), row + j); };
      walk(0, here ? column : v, stream, row, zeros);
      if (!here) return;
      const VF one = set(g[t]);
      Rest{1}.store(one, row + column);
      walk(column + 1, v, stream, row, zeros);
    });
  });
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {
PLAIT_KERNEL(row_lse)
PLAIT_KERNEL(lse_grad)
PLAIT_KERNEL(pick)
PLAIT_KERNEL(pick_grad)
}  // namespace plait
#endif
