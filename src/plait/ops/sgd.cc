// sgd, sgd_momentum: gradient descent in place, as torch.optim.SGD.
//   p, g and the running sum b of one shape; hyper [2] = {learning rate, step from 1}; scale: a
//   factor on g, not finite to skip
//   sgd           p, g, hyper, scale -> p            d = g scale + weight_decay p;  p -= rate d
//   sgd_momentum  p, g, b, hyper, scale -> p, b      b = momentum b + (1 - dampening) d, at first
//                                                    d;  p -= rate b, or, when nesterov is 1,
//                                                    p -= rate (d + momentum b)
#include "plait/ops/update.h"

namespace plait {
namespace {

template <class T>
void sgd(const KernelArgs& args) {
  if (skip_update<T>(args, 3, {{0, 0}})) return;
  const T decay = T(attr(*args.attrs, "weight_decay"));
  const T rate = T(read_hyper<T>(args, 2).rate), scale = *args.in[3].as<T>();
  const T *p = args.in[0].as<T>(), *g = args.in[1].as<T>();
  T* p_out = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i)
    p_out[i] = p[i] - rate * (g[i] * scale + decay * p[i]);
}

template <class T>
void sgd_momentum(const KernelArgs& args) {
  if (skip_update<T>(args, 4, {{0, 0}, {1, 2}})) return;
  const Hyper hyper = read_hyper<T>(args, 3);
  const T decay = T(attr(*args.attrs, "weight_decay"));
  const T momentum = T(attr(*args.attrs, "momentum"));
  const T take = T(hyper.step == 1 ? 1 : 1 - attr(*args.attrs, "dampening"));
  const bool nesterov = attr(*args.attrs, "nesterov") != 0;
  const T rate = T(hyper.rate), scale = *args.in[4].as<T>();
  const T *p = args.in[0].as<T>(), *g = args.in[1].as<T>(), *b = args.in[2].as<T>();
  T *p_out = args.out[0].as<T>(), *b_out = args.out[1].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i) {
    const T d = g[i] * scale + decay * p[i];
    const T sum = momentum * b[i] + take * d;
    const T step = nesterov ? d + momentum * sum : sum;
    p_out[i] = p[i] - rate * step;
    b_out[i] = sum;
  }
}

int64_t momentum_flops(const Attrs& attrs, const Types& in) {
  return checked_mul(attr(attrs, "nesterov") != 0 ? 10 : 8, in[0].elements());
}

std::string rule(const Attrs&, const Types& in) { return elementwise_rule(2, 1, in, "u!, ."); }
std::string momentum_rule(const Attrs&, const Types& in) {
  return elementwise_rule(3, 2, in, "u!, .");
}

std::vector<OpSample> samples() {
  std::vector<OpSample> all = elementwise_samples(2, {{"weight_decay", 0.1}});
  for (OpSample& s : all) s.in.insert(s.in.end(), {kHyperSample, kScalarSample});
  return all;
}

std::vector<OpSample> momentum_samples() {
  std::vector<OpSample> all = elementwise_samples(
      3, {{"weight_decay", 0.1}, {"momentum", 0.9}, {"dampening", 0.25}, {"nesterov", 0}});
  for (OpSample& s : all) s.in.insert(s.in.end(), {kHyperSample, kScalarSample});
  all.back().attrs["nesterov"] = 1;
  all.back().attrs["rate"] = 0.5;
  return all;
}

}  // namespace

OpDef sgd_op() {
  OpDef op;
  op.name = "sgd";
  op.attributes = {"weight_decay", "rate"};
  op.summary = "SGD step";
  op.rule = rule;
  op.check = [](const Attrs&, const Types& in) { check_hyper(in, 2); };
  op.in_place = {{0, 0}};
  op.no_grad = kIsUpdate;
  op.flops = per_element<5>;
  op.reference = PLAIT_REFERENCE(sgd);
  op.samples = samples;
  return op;
}

OpDef sgd_momentum_op() {
  OpDef op;
  op.name = "sgd_momentum";
  op.attributes = {"weight_decay", "rate", "momentum", "dampening", "nesterov"};
  op.summary = "SGD step with momentum";
  op.rule = momentum_rule;
  op.check = [](const Attrs&, const Types& in) { check_hyper(in, 3); };
  op.in_place = {{0, 0}, {1, 2}};
  op.no_grad = kIsUpdate;
  op.flops = momentum_flops;
  op.reference = PLAIT_REFERENCE(sgd_momentum);
  op.samples = momentum_samples;
  return op;
}

}  // namespace plait
