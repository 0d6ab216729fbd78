// Sums, products and biases: one pass over their operands, bound by memory.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/elementwise.cc"
#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include "hwy/foreach_target.h"
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

void add(const KernelArgs& args) {
  map2(args, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
}
void sub(const KernelArgs& args) {
  map2(args, [](VF a, VF b) HWY_ATTR { return hn::Sub(a, b); });
}
void mul(const KernelArgs& args) {
  map2(args, [](VF a, VF b) HWY_ATTR { return hn::Mul(a, b); });
}

void scale(const KernelArgs& args) {
  const VF by = set(static_cast<float>(attr(*args.attrs, "by")));
  map1(args, [=](VF x) HWY_ATTR { return hn::Mul(x, by); });
}

void mul_scalar(const KernelArgs& args) {
  const VF by = set(scalar(args.in[1]));
  map1(args, [=](VF x) HWY_ATTR { return hn::Mul(x, by); });
}

// A sum in f32 takes terms of either type.
void accumulate(const KernelArgs& args) {
  const TensorView &out = args.out[0], &term = args.in[1];
  same_storage({&out, &args.in[0]});
  by_storage(out, [&](auto* y) HWY_ATTR {
    const auto* sum = args.in[0].as<std::remove_pointer_t<decltype(y)>>();
    by_storage(term, [&](auto* g) HWY_ATTR {
      sweep(args.threads, out.elements(), [=](auto io, int64_t i) HWY_ATTR {
        io.store(hn::Add(io.load(sum + i), io.load(g + i)), y + i);
      });
    });
  });
}

void add_bias(const KernelArgs& args) {
  const TensorView &in = args.in[0], &bias = args.in[1], &out = args.out[0];
  const int64_t n = in.dims[1];
  const bool stream = streams(out);
  const float* b = wide(bias);
  same_storage({&out, &in});
  by_storage(out, [&](auto* y) HWY_ATTR {
    const auto* x = in.as<std::remove_pointer_t<decltype(y)>>();
    for_rows(args.threads, in.dims[0], n, [=](int64_t t) HWY_ATTR {
      walk(0, n, stream, y + t * n, [=](auto io, int64_t j) HWY_ATTR {
        io.store(hn::Add(io.load(x + t * n + j), io.load(b + j)), y + t * n + j);
      });
    });
  });
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {
PLAIT_KERNEL(add)
PLAIT_KERNEL(sub)
PLAIT_KERNEL(mul)
PLAIT_KERNEL(scale)
PLAIT_KERNEL(mul_scalar)
PLAIT_KERNEL(accumulate)
PLAIT_KERNEL(add_bias)
}  // namespace plait
#endif
