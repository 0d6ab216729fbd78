// Gated activations and their gradients (ops/fused_gates.cc), one pass each.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/gates.cc"
#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include "hwy/foreach_target.h"
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

// An activation's value and its slope.
struct Curve {
  VF value, slope;
};
struct Silu {
  HWY_INLINE Curve operator()(VF x) const {
    const VF s = sigmoid(x);
    return {hn::Mul(x, s), hn::Mul(s, hn::MulAdd(x, hn::Sub(set(1), s), set(1)))};
  }
};
struct Gelu {
  HWY_INLINE Curve operator()(VF x) const {
    const VF s = sigmoid(gelu_twice_u(x)), near = at_least(set(-64), at_most(set(64), x));
    const VF rise = hn::Mul(hn::Mul(near, hn::Sub(set(1), s)), gelu_twice_du(near));
    return {hn::Mul(x, s), hn::Mul(s, hn::Add(set(1), rise))};
  }
};

template <class Activation>
HWY_INLINE void gated(const KernelArgs& args, Activation f) {
  map2(args, [=](VF g, VF u) HWY_ATTR { return hn::Mul(f(g).value, u); });
}

template <class Activation>
HWY_INLINE void gated_grad(const KernelArgs& args, Activation f) {
  const TensorView& out = args.out[0];
  same_storage({&out, &args.in[0], &args.in[1], &args.in[2]});
  by_storage(out, [&](auto* y) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(y)>;
    const T *g = args.in[0].as<T>(), *u = args.in[1].as<T>(), *dy = args.in[2].as<T>();
    T *dg = args.out[1].as<T>(), *du = args.out[2].as<T>();
    sweep(args.threads, out.elements(), [=](auto io, int64_t i) HWY_ATTR {
      const Curve c = f(io.load(g + i));
      const VF up = io.load(u + i), d = io.load(dy + i);
      io.store(hn::Mul(c.value, up), y + i);
      io.store(hn::Mul(hn::Mul(d, up), c.slope), dg + i);
      io.store(hn::Mul(d, c.value), du + i);
    });
  });
}

void gated_silu(const KernelArgs& args) { gated(args, Silu()); }
void gated_silu_grad(const KernelArgs& args) { gated_grad(args, Silu()); }
void gated_gelu(const KernelArgs& args) { gated(args, Gelu()); }
void gated_gelu_grad(const KernelArgs& args) { gated_grad(args, Gelu()); }

void to_bf16(const KernelArgs& args) {
  const float* x = wide(args.in[0]);
  uint16_t* y = args.out[0].as<uint16_t>();
  sweep(args.threads, args.out[0].elements(),
        [=](auto io, int64_t i) HWY_ATTR { io.store(io.load(x + i), y + i); });
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {
PLAIT_KERNEL(gated_silu)
PLAIT_KERNEL(gated_silu_grad)
PLAIT_KERNEL(gated_gelu)
PLAIT_KERNEL(gated_gelu_grad)
PLAIT_KERNEL(to_bf16)
}  // namespace plait
#endif
