// clip_scale: y = min(1, max_norm / (sqrt(s) + 1e-6)), the factor that clips gradients whose
// squares sum to s; 1 when max_norm is 0. As torch.nn.utils.clip_grad_norm_. NaN when s or the
// loss is not finite, which tells the ops of the update to leave everything as it is.
//   s, loss: scalars -> scalar
#include "plait/ops/update.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  using std::sqrt;
  const double max_norm = attr(*args.attrs, "max_norm");
  const T s = *args.in[0].as<T>();
  T y = T(1);
  if (max_norm != 0) {
    y = T(max_norm) / (sqrt(s) + T(1e-6));
    if (y > T(1)) y = T(1);
  }
  if (!std::isfinite(scalar<T>(args.in[0])) || !std::isfinite(scalar<T>(args.in[1])))
    y = T(std::numeric_limits<double>::quiet_NaN());
  *args.out[0].as<T>() = y;
}

int64_t flops(const Attrs& attrs, const Types&) { return attr(attrs, "max_norm") != 0 ? 3 : 0; }

std::vector<OpSample> samples() {
  std::vector<OpSample> all;
  for (const double max_norm : {0.0, 0.25, 10.0}) {
    OpSample s = one_sample({kScalarSample, kScalarSample}, {{"max_norm", max_norm}})[0];
    s.low = 0.5;  // a sum of squares
    all.push_back(s);
  }
  return all;
}

}  // namespace

OpDef clip_scale_op() {
  OpDef op;
  op.name = "clip_scale";
  op.attributes = {"max_norm"};
  op.summary = "factor that clips a gradient norm; NaN to skip the update";
  op.rule = fixed_rule<"., . -> .">;
  op.no_grad = kIsUpdate;
  op.flops = flops;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  return op;
}

}  // namespace plait
