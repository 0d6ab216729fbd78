// sgd: p -= rate (g scale + weight_decay p), in place, as torch.optim.SGD without momentum.
//   p and g of one shape; hyper [2] = {learning rate, step from 1}; scale: a factor on g -> p
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  const T decay = T(attr(*args.attrs, "weight_decay"));
  const T rate = args.in[2].as<T>()[0], scale = *args.in[3].as<T>();
  const T *p = args.in[0].as<T>(), *g = args.in[1].as<T>();
  T* p_out = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i)
    p_out[i] = p[i] - rate * (g[i] * scale + decay * p[i]);
}

std::string rule(const Attrs&, const Types& in) { return elementwise_rule(2, 1, in, "u!, ."); }

void check(const Attrs&, const Types& in) {
  if (in[2].dims[0].size != 2)
    fail("operand 2: found {}, expected 2 elements: learning rate, step", to_string(in[2]));
}

std::vector<OpSample> samples() {
  std::vector<OpSample> all = elementwise_samples(2, {{"weight_decay", 0.1}});
  for (OpSample& s : all) {
    s.in.push_back({Dtype::f64, {{"", 2}}});
    s.in.push_back({Dtype::f64, {}});
  }
  return all;
}

}  // namespace

OpDef sgd_op() {
  OpDef op;
  op.name = "sgd";
  op.attributes = {"weight_decay"};
  op.summary = "SGD step";
  op.rule = rule;
  op.check = check;
  op.in_place = {{0, 0}};
  op.no_grad = kIsUpdate;
  op.flops = per_element<5>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  return op;
}

}  // namespace plait
