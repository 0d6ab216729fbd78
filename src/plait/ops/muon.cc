// The ops of Muon around `orthogonalize`, as torch.optim.Muon: momentum before it, the step after.
//   muon_momentum  m, g, scale, of one shape -> m, in place, and the direction u: m moves to
//                  g scale by the share 1 - momentum; u = m, or with nesterov a step further
//   muon_step      p, u, hyper, scale -> p, in place: p (1 - rate weight_decay) - rate size u
// hyper [2] = {learning rate, step from 1}; scale: a factor on g, not finite to skip.
#include "plait/ops/update.h"

namespace plait {
namespace {

template <class T>
void momentum(const KernelArgs& args) {
  if (skip_update<T>(args, 2, {{0, 0}})) {
    std::fill_n(args.out[1].as<T>(), args.out[1].elements(), T(0));  // not used
    return;
  }
  const double share = attr(*args.attrs, "momentum");
  const bool nesterov = attr(*args.attrs, "nesterov") != 0;
  const T take = T(1 - share), ahead = T(share), scale = *args.in[2].as<T>();
  const T *m = args.in[0].as<T>(), *g = args.in[1].as<T>();
  T *m_out = args.out[0].as<T>(), *u = args.out[1].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i) {
    const T now = g[i] * scale;
    const T mean = m[i] + (now - m[i]) * take;
    u[i] = nesterov ? now + (mean - now) * ahead : mean;
    m_out[i] = mean;
  }
}

int64_t momentum_flops(const Attrs& attrs, const Types& in) {
  return checked_mul(attr(attrs, "nesterov") != 0 ? 7 : 4, in[0].elements());
}

template <class T>
void step(const KernelArgs& args) {
  if (skip_update<T>(args, 3, {{0, 0}})) return;
  const double rate = read_hyper<T>(args, 2).rate;
  const T keep = T(kept_share(args, rate)), by = T(rate * attr(*args.attrs, "size"));
  const T *p = args.in[0].as<T>(), *u = args.in[1].as<T>();
  T* p_out = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i) p_out[i] = p[i] * keep - by * u[i];
}

std::vector<OpSample> momentum_samples() {
  std::vector<OpSample> all = elementwise_samples(2, {{"momentum", 0.95}, {"nesterov", 1}});
  for (OpSample& s : all) s.in.push_back(kScalarSample);
  all.back().attrs["nesterov"] = 0;
  return all;
}

std::vector<OpSample> step_samples() {
  std::vector<OpSample> all =
      elementwise_samples(2, {{"weight_decay", 0.1}, {"rate", 0.5}, {"size", 2}});
  for (OpSample& s : all) s.in.insert(s.in.end(), {kHyperSample, kScalarSample});
  return all;
}

}  // namespace

OpDef muon_momentum_op() {
  OpDef op;
  op.name = "muon_momentum";
  op.attributes = {"momentum", "nesterov"};
  op.summary = "running mean of gradients, and the direction ahead of it";
  op.rule = [](const Attrs&, const Types& in) { return elementwise_rule(2, 2, in, "."); };
  op.in_place = {{0, 0}};
  op.no_grad = kIsUpdate;
  op.flops = momentum_flops;
  op.reference = PLAIT_REFERENCE(momentum);
  op.samples = momentum_samples;
  return op;
}

OpDef muon_step_op() {
  OpDef op;
  op.name = "muon_step";
  op.attributes = {"weight_decay", "rate", "size"};
  op.summary = "decay, and a step along a direction";
  op.rule = [](const Attrs&, const Types& in) { return elementwise_rule(2, 1, in, "u!, ."); };
  op.check = [](const Attrs&, const Types& in) { check_hyper(in, 2); };
  op.in_place = {{0, 0}};
  op.no_grad = kIsUpdate;
  op.flops = per_element<3>;
  op.reference = PLAIT_REFERENCE(step);
  op.samples = step_samples;
  return op;
}

}  // namespace plait
