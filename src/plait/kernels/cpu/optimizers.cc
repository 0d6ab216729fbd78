// Updates in one pass over parameter, gradient and states, which are f32; gradients may be bf16.
// Formulas and what a scale that is not finite does are those of the records in ops/.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/optimizers.cc"
#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include "hwy/foreach_target.h"
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/simd-inl.h"
#include "plait/ops/update.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

HWY_INLINE VF set(double x) { return set(static_cast<float>(x)); }

// p - size m / (root of v / correction + eps) with one division: correction is multiplied out.
void adamw(const KernelArgs& args) {
  if (skip_update<float>(args, 5, {{0, 0}, {1, 2}, {2, 3}})) return;
  const double beta1 = attr(*args.attrs, "beta1"), beta2 = attr(*args.attrs, "beta2");
  const auto [rate, step] = read_hyper<float>(args, 4);
  const double correction = std::sqrt(1 - std::pow(beta2, step));
  const VF decay = set(kept_share(args, rate));
  const VF size = set(rate * correction / (1 - std::pow(beta1, step)));
  const VF eps = set(attr(*args.attrs, "eps") * correction), scale = set(*wide(args.in[5]));
  const VF keep1 = set(beta1), take1 = set(1 - beta1), keep2 = set(beta2), take2 = set(1 - beta2);
  const float *p = wide(args.in[0]), *m = wide(args.in[2]), *v = wide(args.in[3]);
  float *p_out = wide(args.out[0]), *m_out = wide(args.out[1]), *v_out = wide(args.out[2]);
  by_storage(args.in[1], [&](auto* g) HWY_ATTR {
    sweep(args.threads, args.out[0].elements(), [=](auto io, int64_t i) HWY_ATTR {
      const VF gi = hn::Mul(io.load(g + i), scale);
      const VF mi = hn::MulAdd(keep1, io.load(m + i), hn::Mul(take1, gi));
      const VF vi = hn::MulAdd(keep2, io.load(v + i), hn::Mul(hn::Mul(take2, gi), gi));
      const VF move = hn::Div(hn::Mul(size, mi), hn::Add(hn::Sqrt(vi), eps));
      io.store(hn::MulSub(io.load(p + i), decay, move), p_out + i);
      io.store(mi, m_out + i);
      io.store(vi, v_out + i);
    });
  });
}

void sgd(const KernelArgs& args) {
  if (skip_update<float>(args, 3, {{0, 0}})) return;
  const VF decay = set(attr(*args.attrs, "weight_decay"));
  const VF rate = set(read_hyper<float>(args, 2).rate), scale = set(*wide(args.in[3]));
  const float* p = wide(args.in[0]);
  float* p_out = wide(args.out[0]);
  by_storage(args.in[1], [&](auto* g) HWY_ATTR {
    sweep(args.threads, args.out[0].elements(), [=](auto io, int64_t i) HWY_ATTR {
      const VF pi = io.load(p + i);
      const VF d = hn::MulAdd(decay, pi, hn::Mul(io.load(g + i), scale));
      io.store(hn::NegMulAdd(rate, d, pi), p_out + i);
    });
  });
}

void sgd_momentum(const KernelArgs& args) {
  if (skip_update<float>(args, 4, {{0, 0}, {1, 2}})) return;
  const Attrs& attrs = *args.attrs;
  const Hyper hyper = read_hyper<float>(args, 3);
  const VF decay = set(attr(attrs, "weight_decay")), momentum = set(attr(attrs, "momentum"));
  const VF take = set(hyper.step == 1 ? 1 : 1 - attr(attrs, "dampening"));
  const VF rate = set(hyper.rate), scale = set(*wide(args.in[4]));
  const bool nesterov = attr(attrs, "nesterov") != 0;
  const float *p = wide(args.in[0]), *b = wide(args.in[2]);
  float *p_out = wide(args.out[0]), *b_out = wide(args.out[1]);
  by_storage(args.in[1], [&](auto* g) HWY_ATTR {
    sweep(args.threads, args.out[0].elements(), [=](auto io, int64_t i) HWY_ATTR {
      const VF pi = io.load(p + i);
      const VF d = hn::MulAdd(decay, pi, hn::Mul(io.load(g + i), scale));
      const VF sum = hn::MulAdd(momentum, io.load(b + i), hn::Mul(take, d));
      const VF step = nesterov ? hn::MulAdd(momentum, sum, d) : sum;
      io.store(hn::NegMulAdd(rate, step, pi), p_out + i);
      io.store(sum, b_out + i);
    });
  });
}

void adafactor_moment(const KernelArgs& args) {
  if (skip_update<float>(args, 3, {{0, 0}})) return;
  const double scale = *wide(args.in[3]), step = read_hyper<float>(args, 2).step;
  const VF by = set(scale * scale / attr(*args.attrs, "count"));
  const VF take = set(std::pow(step, attr(*args.attrs, "decay")));
  const float *s = wide(args.in[0]), *q = wide(args.in[1]);
  float* s_out = wide(args.out[0]);
  sweep(args.threads, args.out[0].elements(), [=](auto io, int64_t i) HWY_ATTR {
    const VF si = io.load(s + i);
    io.store(hn::MulAdd(hn::MulSub(io.load(q + i), by, si), take, si), s_out + i);
  });
}

// A gradient that is not finite gives a direction of 0, which is not used.
inline bool no_direction(const KernelArgs& args, float scale, const TensorView& out) {
  if (std::isfinite(scale)) return false;
  float* u = wide(out);
  sweep(args.threads, out.elements(),
        [=](auto io, int64_t i) HWY_ATTR { io.store(zero(), u + i); });
  return true;
}

HWY_INLINE VF at_least_or_nan(VF v, VF low) { return hn::IfThenElse(hn::Gt(v, low), v, low); }

void adafactor_direction(const KernelArgs& args) {
  const float scale = *wide(args.in[4]);
  if (no_direction(args, scale, args.out[0])) return;
  const TensorView& gradient = args.in[0];
  const auto last = static_cast<size_t>(gradient.rank - 1);
  const int64_t rows = gradient.dims[last - 1], columns = gradient.dims[last];
  const int64_t slices = gradient.rank == 3 ? gradient.dims[0] : 1;
  const double eps1 = attr(*args.attrs, "eps1");
  const auto low = static_cast<float>(eps1), count = static_cast<float>(attr(*args.attrs, "count"));
  const VF lowest = set(eps1 * eps1), by = set(scale);
  const float *row = wide(args.in[1]), *col = wide(args.in[2]), *sums = wide(args.in[3]);
  float* u = wide(args.out[0]);
  const bool stream = streams(args.out[0]);
  by_storage(gradient, [&](auto* g) HWY_ATTR {
    for_rows(args.threads, slices * rows, columns, [=](int64_t i) HWY_ATTR {
      const int64_t slice = i / rows;
      const float mean = sums[slice] / count;
      const VF r = set(row[i] / (mean > low ? mean : low));
      const float* c = col + slice * columns;
      walk(0, columns, stream, u + i * columns, [=](auto io, int64_t j) HWY_ATTR {
        const VF v = at_least_or_nan(hn::Mul(r, io.load(c + j)), lowest);
        const VF now = hn::Mul(io.load(g + i * columns + j), by);
        io.store(hn::Div(now, hn::Sqrt(v)), u + i * columns + j);
      });
    });
  });
}

void adafactor_whole(const KernelArgs& args) {
  const float scale = *wide(args.in[2]);
  if (no_direction(args, scale, args.out[0])) return;
  const double eps1 = attr(*args.attrs, "eps1");
  const VF lowest = set(eps1 * eps1), by = set(scale);
  const float* s = wide(args.in[1]);
  float* u = wide(args.out[0]);
  by_storage(args.in[0], [&](auto* g) HWY_ATTR {
    sweep(args.threads, args.out[0].elements(), streams(args.out[0]), u,
          [=](auto io, int64_t i) HWY_ATTR {
            const VF v = at_least_or_nan(io.load(s + i), lowest);
            io.store(hn::Div(hn::Mul(io.load(g + i), by), hn::Sqrt(v)), u + i);
          });
  });
}

// p = keep p - by u
HWY_INLINE void step_along(const KernelArgs& args, double keep, double by) {
  const VF kept = set(keep), size = set(by);
  const float *p = wide(args.in[0]), *u = wide(args.in[1]);
  float* p_out = wide(args.out[0]);
  sweep(args.threads, args.out[0].elements(), [=](auto io, int64_t i) HWY_ATTR {
    io.store(hn::NegMulAdd(size, io.load(u + i), hn::Mul(io.load(p + i), kept)), p_out + i);
  });
}

void adafactor_step(const KernelArgs& args) {
  if (skip_update<float>(args, 4, {{0, 0}})) return;
  const Attrs& attrs = *args.attrs;
  const Hyper hyper = read_hyper<float>(args, 3);
  const double count = attr(attrs, "count");
  double size = hyper.rate;
  if (attr(attrs, "relative_step") != 0) size = std::min(size, 1 / std::sqrt(hyper.step));
  if (attr_or(attrs, "scale_parameter", 1) != 0)
    size *=
        std::max(attr(attrs, "eps2"), std::sqrt(static_cast<double>(*wide(args.in[5])) / count));
  const double root = std::sqrt(static_cast<double>(*wide(args.in[2])) / count);
  size /= std::max(1.0, root / attr(attrs, "clip"));
  step_along(args, kept_share(args, hyper.rate), size);
}

void muon_momentum(const KernelArgs& args) {
  if (skip_update<float>(args, 2, {{0, 0}})) {
    no_direction(args, *wide(args.in[2]), args.out[1]);
    return;
  }
  const double share = attr(*args.attrs, "momentum");
  const bool nesterov = attr(*args.attrs, "nesterov") != 0;
  const VF take = set(1 - share), ahead = set(share), scale = set(*wide(args.in[2]));
  const float* m = wide(args.in[0]);
  float *m_out = wide(args.out[0]), *u = wide(args.out[1]);
  by_storage(args.in[1], [&](auto* g) HWY_ATTR {
    sweep(args.threads, args.out[0].elements(), [=](auto io, int64_t i) HWY_ATTR {
      const VF now = hn::Mul(io.load(g + i), scale), mi = io.load(m + i);
      const VF mean = hn::MulAdd(hn::Sub(now, mi), take, mi);
      io.store(nesterov ? hn::MulAdd(hn::Sub(mean, now), ahead, now) : mean, u + i);
      io.store(mean, m_out + i);
    });
  });
}

void muon_step(const KernelArgs& args) {
  if (skip_update<float>(args, 3, {{0, 0}})) return;
  const double rate = read_hyper<float>(args, 2).rate;
  step_along(args, kept_share(args, rate), rate * attr(*args.attrs, "size"));
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {
PLAIT_KERNEL(adamw)
PLAIT_KERNEL(sgd)
PLAIT_KERNEL(sgd_momentum)
PLAIT_KERNEL(adafactor_moment)
PLAIT_KERNEL(adafactor_direction)
PLAIT_KERNEL(adafactor_whole)
PLAIT_KERNEL(adafactor_step)
PLAIT_KERNEL(muon_momentum)
PLAIT_KERNEL(muon_step)
}  // namespace plait
#endif
