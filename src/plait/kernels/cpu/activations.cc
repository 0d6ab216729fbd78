// Activation functions and their gradients, elementwise. Formulas are those of the records in
// ops/, with 1 + tanh u written as 2 sigmoid(2 u): nothing cancels where the result is small.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/activations.cc"
#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include "hwy/foreach_target.h"
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

void relu(const KernelArgs& args) {
  map1(args, [](VF x) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(x, zero()), x); });
}
void relu_grad(const KernelArgs& args) {
  map2(args, [](VF x, VF dy) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(x, zero()), dy); });
}

void squared_relu(const KernelArgs& args) {
  map1(args, [](VF x) HWY_ATTR {
    const VF positive = hn::IfThenElseZero(hn::Gt(x, zero()), x);
    return hn::Mul(positive, positive);
  });
}
void squared_relu_grad(const KernelArgs& args) {
  map2(args, [](VF x, VF dy) HWY_ATTR {
    const VF positive = hn::IfThenElseZero(hn::Gt(x, zero()), x);
    return hn::Mul(hn::Add(positive, positive), dy);
  });
}

void silu(const KernelArgs& args) {
  map1(args, [](VF x) HWY_ATTR { return hn::Mul(x, sigmoid(x)); });
}
// dy s (1 + x (1 - s)), where 1 - s is the sigmoid of -x
void silu_grad(const KernelArgs& args) {
  map2(args, [](VF x, VF dy) HWY_ATTR {
    const VF s = sigmoid(x);
    const VF slope = hn::MulAdd(x, hn::Sub(set(1), s), set(1));
    return hn::Mul(dy, hn::Mul(s, slope));
  });
}

constexpr float kQuick = 1.702f;

void gelu_quick(const KernelArgs& args) {
  map1(args, [](VF x) HWY_ATTR { return hn::Mul(x, sigmoid(hn::Mul(set(kQuick), x))); });
}
// beyond 128, s or 1 - s is 0 and must not meet an infinity
void gelu_quick_grad(const KernelArgs& args) {
  map2(args, [](VF x, VF dy) HWY_ATTR {
    const VF slope = at_least(set(-128), at_most(set(128), hn::Mul(set(kQuick), x)));
    const VF s = sigmoid(slope);
    return hn::Mul(dy, hn::Mul(s, hn::MulAdd(slope, hn::Sub(set(1), s), set(1))));
  });
}

void gelu(const KernelArgs& args) {
  map1(args, [](VF x) HWY_ATTR { return hn::Mul(x, sigmoid(gelu_twice_u(x))); });
}
// dy (s + x s (1 - s) (2 u)'); beyond 64, 1 - s is 0 and must not meet an infinity.
void gelu_grad(const KernelArgs& args) {
  map2(args, [](VF x, VF dy) HWY_ATTR {
    const VF s = sigmoid(gelu_twice_u(x)), near = at_least(set(-64), at_most(set(64), x));
    const VF rise = hn::Mul(hn::Mul(near, hn::Sub(set(1), s)), gelu_twice_du(near));
    return hn::Mul(dy, hn::Mul(s, hn::Add(set(1), rise)));
  });
}

void gelu_erf(const KernelArgs& args) {
  map1(args, [](VF x) HWY_ATTR { return hn::Mul(x, normal(x).below); });
}
void gelu_erf_grad(const KernelArgs& args) {
  map2(args, [](VF x, VF dy) HWY_ATTR {
    const Normal n = normal(x);
    const VF density = hn::Mul(set(0.3989422804f), n.density);
    return hn::Mul(dy, hn::MulAdd(x, density, n.below));
  });
}

void soft_cap(const KernelArgs& args) {
  const double cap = attr(*args.attrs, "cap");
  const VF to = set(static_cast<float>(cap)), by = set(static_cast<float>(1 / cap));
  map1(args, [=](VF x) HWY_ATTR { return hn::Mul(to, tanh(hn::Mul(x, by))); });
}
void soft_cap_grad(const KernelArgs& args) {
  const VF by = set(static_cast<float>(1 / attr(*args.attrs, "cap")));
  map2(args, [=](VF y, VF dy) HWY_ATTR {
    const VF t = hn::Mul(y, by);
    return hn::Mul(dy, hn::NegMulAdd(t, t, set(1)));
  });
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {
PLAIT_KERNEL(relu)
PLAIT_KERNEL(relu_grad)
PLAIT_KERNEL(squared_relu)
PLAIT_KERNEL(squared_relu_grad)
PLAIT_KERNEL(silu)
PLAIT_KERNEL(silu_grad)
PLAIT_KERNEL(gelu_quick)
PLAIT_KERNEL(gelu_quick_grad)
PLAIT_KERNEL(gelu)
PLAIT_KERNEL(gelu_grad)
PLAIT_KERNEL(gelu_erf)
PLAIT_KERNEL(gelu_erf_grad)
PLAIT_KERNEL(soft_cap)
PLAIT_KERNEL(soft_cap_grad)
}  // namespace plait
#endif
