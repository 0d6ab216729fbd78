// pick: y[t] = x[t, labels[t]]   x [T, V], labels i32 [T] -> [T]
// A shard of the columns gives zeros for labels of other shards, so splitting V gives pending sums.
#include "plait/ops/ops.h"

namespace plait {
namespace {

// Calls element(t, index) for every label in the columns of this shard of x.
template <class Element>
void for_each_label(std::string_view op, const TensorView& x, const TensorView& labels,
                    Element element) {
  for (int64_t t = 0; t < x.dims[0]; ++t) {
    const int64_t id = labels.as<int32_t>()[t];
    check_id(op, id, labels.begin[0] + t, x.global[1]);
    const int64_t v = id - x.begin[1];
    if (v >= 0 && v < x.dims[1]) element(t, t * x.dims[1] + v);
  }
}

template <class T>
void reference(const KernelArgs& args) {
  const T* x = args.in[0].as<T>();
  T* y = args.out[0].as<T>();
  std::fill_n(y, args.out[0].elements(), T(0));
  for_each_label("pick", args.in[0], args.in[1], [&](int64_t t, int64_t i) { y[t] = x[i]; });
}

template <class T>
void grad_reference(const KernelArgs& args) {
  const T* g = args.in[2].as<T>();
  T* dx = args.out[0].as<T>();
  std::fill_n(dx, args.out[0].elements(), T(0));
  for_each_label("pick_grad", args.in[0], args.in[1], [&](int64_t t, int64_t i) { dx[i] = g[t]; });
}

void grad(GradContext& g) { g.add(0, g.emit("pick_grad", {g.in(0), g.in(1), g.d_out(0)})[0]); }

OpSample sample() {
  const Extent t{"T", 5}, v{"V", 7};
  OpSample s;
  s.in = {{Dtype::f64, {t, v}}, {Dtype::i32, {t}}};
  s.integers = [](size_t, int64_t i) { return static_cast<int32_t>(i * 3 % 7); };
  return s;
}

std::vector<OpSample> grad_samples() {
  OpSample s = sample();
  s.in.push_back({Dtype::f64, {s.in[0].dims[0]}});
  s.unused = {0};
  return {s};
}

}  // namespace

OpDef pick_op() {
  OpDef op;
  op.name = "pick";
  op.summary = "one value of every row, by label";
  op.rule = fixed_rule<"t v, t -> ^t">;
  op.integer_operands = {1};
  op.grad = grad;
  op.flops = no_flops;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return std::vector<OpSample>{sample()}; };
  return op;
}

OpDef pick_grad_op() {
  OpDef op;
  op.name = "pick_grad";
  op.summary = "gradient of pick; x gives its shape only";
  op.rule = fixed_rule<"t v, t, ^t -> t v">;
  op.integer_operands = {1};
  op.no_grad = kIsGradient;
  op.flops = no_flops;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = grad_samples;
  return op;
}

}  // namespace plait
