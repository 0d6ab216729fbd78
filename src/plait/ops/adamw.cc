// adamw: one step of Adam with decoupled weight decay, in place, as torch.optim.AdamW
// (Loshchilov and Hutter, 2017).
//   parameter p, gradient g, moments m and v: one shape; hyper [2] = {learning rate, step from 1};
//   scale: a factor on g, not finite to skip -> p, m, v
#include "plait/ops/update.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  using std::sqrt;
  if (skip_update<T>(args, 5, {{0, 0}, {1, 2}, {2, 3}})) return;
  const double beta1 = attr(*args.attrs, "beta1"), beta2 = attr(*args.attrs, "beta2");
  const auto [rate, step] = read_hyper<T>(args, 4);
  const T decay = T(kept_share(args, rate));
  const T size = T(rate / (1 - std::pow(beta1, step)));
  const T correction = T(std::sqrt(1 - std::pow(beta2, step)));
  const T eps = T(attr(*args.attrs, "eps"));
  const T keep1 = T(beta1), take1 = T(1 - beta1), keep2 = T(beta2), take2 = T(1 - beta2);
  const T scale = *args.in[5].as<T>();
  const T *p = args.in[0].as<T>(), *g = args.in[1].as<T>();
  const T *m = args.in[2].as<T>(), *v = args.in[3].as<T>();
  T *p_out = args.out[0].as<T>(), *m_out = args.out[1].as<T>(), *v_out = args.out[2].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i) {
    const T gi = g[i] * scale;
    const T mi = keep1 * m[i] + take1 * gi;
    const T vi = keep2 * v[i] + take2 * gi * gi;
    p_out[i] = p[i] * decay - size * mi / (sqrt(vi) / correction + eps);
    m_out[i] = mi;
    v_out[i] = vi;
  }
}

std::string rule(const Attrs&, const Types& in) { return elementwise_rule(4, 3, in, "u!, ."); }

void check(const Attrs&, const Types& in) { check_hyper(in, 4); }

std::vector<OpSample> samples() {
  std::vector<OpSample> all = elementwise_samples(
      4, {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}});
  for (OpSample& s : all) {
    s.in.push_back(kHyperSample);
    s.in.push_back(kScalarSample);
    s.low = 0.1;  // v and the step are positive
  }
  all.back().attrs["rate"] = 0.5;
  return all;
}

}  // namespace

OpDef adamw_op() {
  OpDef op;
  op.name = "adamw";
  op.attributes = {"beta1", "beta2", "eps", "weight_decay", "rate"};
  op.summary = "AdamW step";
  op.rule = rule;
  op.check = check;
  op.in_place = {{0, 0}, {1, 2}, {2, 3}};
  op.no_grad = kIsUpdate;
  op.flops = per_element<15>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  return op;
}

}  // namespace plait
