// The ops of Adafactor (Shazeer and Stern, 2018), as torch.optim.Adafactor computes it. The second
// moment of a gradient g [.., R, C] is kept as means over its rows and its columns; that of a
// vector is kept whole. hyper [2] = {learning rate, step from 1}; scale: a factor on g, not finite
// to skip.
//   adafactor_moment     s, q, hyper, scale -> s, in place: s moves to q scale^2 / count by the
//                        share step^decay; q are sums of squares of `count` elements each
//   adafactor_direction  g [.., R, C], row [.., R], col [.., C], row_sum [..], scale -> like g:
//                        u = g scale / root of (row col / mean of row), where `count` is R
//   adafactor_whole      g, s, scale, of one shape -> u = g scale / root of s
//   adafactor_step       p, u, uu, hyper, scale (, pp) -> p, in place, where uu and pp are the sums
//                        of squares of u and p, `count` elements each: u is scaled down until its
//                        root mean square is `clip`, the learning rate is at most 1 / root of step
//                        (relative_step) and multiplied by that of p, at least eps2
//                        (scale_parameter, which takes pp)
#include "plait/ops/update.h"

namespace plait {
namespace {

template <class T>
void moment(const KernelArgs& args) {
  if (skip_update<T>(args, 3, {{0, 0}})) return;
  const double scale = scalar<T>(args.in[3]), step = read_hyper<T>(args, 2).step;
  const T by = T(scale * scale / attr(*args.attrs, "count"));
  const T take = T(std::pow(step, attr(*args.attrs, "decay")));
  const T *s = args.in[0].as<T>(), *q = args.in[1].as<T>();
  T* s_out = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i)
    s_out[i] = s[i] + (q[i] * by - s[i]) * take;
}

// A gradient that is not finite gives a direction of 0, which is not used.
template <class T>
bool no_direction(const KernelArgs& args, const TensorView& scale) {
  if (std::isfinite(scalar<T>(scale))) return false;
  std::fill_n(args.out[0].as<T>(), args.out[0].elements(), T(0));
  return true;
}

template <class T>
void direction(const KernelArgs& args) {
  using std::sqrt;
  if (no_direction<T>(args, args.in[4])) return;
  const TensorView& g = args.in[0];
  const auto last = static_cast<size_t>(g.rank - 1);
  const int64_t rows = g.dims[last - 1], columns = g.dims[last];
  const int64_t slices = g.rank == 3 ? g.dims[0] : 1;
  const double eps1 = attr(*args.attrs, "eps1");
  const T low = T(eps1), lowest = T(eps1 * eps1), count = T(attr(*args.attrs, "count"));
  const T scale = *args.in[4].as<T>();
  const T *pg = g.as<T>(), *row = args.in[1].as<T>(), *col = args.in[2].as<T>();
  const T* sums = args.in[3].as<T>();
  T* u = args.out[0].as<T>();
  for (int64_t s = 0; s < slices; ++s) {
    T mean = sums[s] / count;
    if (!(mean > low)) mean = low;
    for (int64_t i = s * rows; i < (s + 1) * rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        T v = row[i] * col[s * columns + j] / mean;
        if (!(v > lowest)) v = lowest;
        u[i * columns + j] = pg[i * columns + j] * scale / sqrt(v);
      }
  }
}

template <class T>
void whole(const KernelArgs& args) {
  using std::sqrt;
  if (no_direction<T>(args, args.in[2])) return;
  const double eps1 = attr(*args.attrs, "eps1");
  const T lowest = T(eps1 * eps1), scale = *args.in[2].as<T>();
  const T *g = args.in[0].as<T>(), *s = args.in[1].as<T>();
  T* u = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i)
    u[i] = g[i] * scale / sqrt(s[i] > lowest ? s[i] : lowest);
}

bool scales_parameter(const Attrs& attrs) { return attr_or(attrs, "scale_parameter", 1) != 0; }

template <class T>
void step(const KernelArgs& args) {
  if (skip_update<T>(args, 4, {{0, 0}})) return;
  const Attrs& attrs = *args.attrs;
  const Hyper hyper = read_hyper<T>(args, 3);
  const double count = attr(attrs, "count");
  double size = hyper.rate;
  if (attr(attrs, "relative_step") != 0) size = std::min(size, 1 / std::sqrt(hyper.step));
  if (scales_parameter(attrs))
    size *= std::max(attr(attrs, "eps2"), std::sqrt(scalar<T>(args.in[5]) / count));
  size /= std::max(1.0, std::sqrt(scalar<T>(args.in[2]) / count) / attr(attrs, "clip"));
  const T keep = T(kept_share(args, hyper.rate)), by = T(size);
  const T *p = args.in[0].as<T>(), *u = args.in[1].as<T>();
  T* p_out = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i) p_out[i] = p[i] * keep - by * u[i];
}

std::string direction_rule(const Attrs&, const Types& in) {
  const size_t rank = in.empty() ? 2 : in[0].dims.size();
  if (rank == 2) return "r c, r, c, ., . -> r c";
  if (rank == 3) return "a r c, a r, a c, a, . -> a r c";
  fail("operand 0: found {} dimensions, expected 2 or 3", rank);
}

int64_t direction_flops(const Attrs&, const Types& in) {
  return checked_add(checked_mul(5, in[0].elements()), in[3].elements());
}

void check_count(const Attrs& attrs, const Types&) { whole_attr(attrs, "count", 1); }

std::vector<OpSample> moment_samples() {
  std::vector<OpSample> all = elementwise_samples(2, {{"count", 4}, {"decay", -0.8}});
  for (OpSample& s : all) {
    s.in.insert(s.in.end(), {kHyperSample, kScalarSample});
    s.low = 0.1;
  }
  return all;
}

std::vector<OpSample> direction_samples() {
  const Extent a{"E", 3}, r{"F", 6, 2}, c{"D", 5};
  const Attrs attrs = {{"count", 6}, {"eps1", 1e-8}};
  std::vector<OpSample> all = one_sample(
      {{Dtype::f64, {r, c}}, {Dtype::f64, {r}}, {Dtype::f64, {c}}, kScalarSample, kScalarSample},
      attrs);
  all.push_back(one_sample({{Dtype::f64, {a, r, c}},
                            {Dtype::f64, {a, r}},
                            {Dtype::f64, {a, c}},
                            {Dtype::f64, {a}},
                            kScalarSample},
                           attrs)[0]);
  for (OpSample& s : all) s.low = 0.1;  // second moments
  return all;
}

std::vector<OpSample> whole_samples() {
  std::vector<OpSample> all = elementwise_samples(2, {{"eps1", 1e-8}});
  for (OpSample& s : all) {
    s.in.push_back(kScalarSample);
    s.low = 0.1;
  }
  return all;
}

std::vector<OpSample> step_samples() {
  std::vector<OpSample> all;
  for (const double scale_parameter : {1, 0})
    for (OpSample s : elementwise_samples(2, {{"count", 30},
                                              {"clip", 1},
                                              {"relative_step", scale_parameter},
                                              {"scale_parameter", scale_parameter},
                                              {"eps2", 1e-3},
                                              {"weight_decay", 0.1},
                                              {"rate", 0.5}})) {
      s.in.insert(s.in.end(), {kScalarSample, kHyperSample, kScalarSample});
      if (scale_parameter != 0) s.in.push_back(kScalarSample);
      s.low = 0.1;
      all.push_back(s);
    }
  return all;
}

}  // namespace

OpDef adafactor_moment_op() {
  OpDef op;
  op.name = "adafactor_moment";
  op.attributes = {"count", "decay"};
  op.summary = "running mean of squares";
  op.rule = [](const Attrs&, const Types& in) { return elementwise_rule(2, 1, in, "u!, ."); };
  op.check = [](const Attrs& attrs, const Types& in) {
    check_count(attrs, in);
    check_hyper(in, 2);
  };
  op.in_place = {{0, 0}};
  op.no_grad = kIsUpdate;
  op.flops = per_element<4>;
  op.reference = PLAIT_REFERENCE(moment);
  op.samples = moment_samples;
  return op;
}

OpDef adafactor_direction_op() {
  OpDef op;
  op.name = "adafactor_direction";
  op.attributes = {"count", "eps1"};
  op.summary = "gradient over the root of a factored second moment";
  op.rule = direction_rule;
  op.check = check_count;
  op.no_grad = kIsUpdate;
  op.flops = direction_flops;
  op.reference = PLAIT_REFERENCE(direction);
  op.samples = direction_samples;
  return op;
}

OpDef adafactor_whole_op() {
  OpDef op;
  op.name = "adafactor_whole";
  op.attributes = {"eps1"};
  op.summary = "gradient over the root of a second moment";
  op.rule = [](const Attrs&, const Types& in) { return elementwise_rule(2, 1, in, "."); };
  op.no_grad = kIsUpdate;
  op.flops = per_element<3>;
  op.reference = PLAIT_REFERENCE(whole);
  op.samples = whole_samples;
  return op;
}

OpDef adafactor_step_op() {
  OpDef op;
  op.name = "adafactor_step";
  op.attributes = {"count", "clip",         "relative_step", "scale_parameter",
                   "eps2",  "weight_decay", "rate"};
  op.summary = "Adafactor step along a direction";
  op.rule = [](const Attrs& attrs, const Types& in) {
    return elementwise_rule(2, 1, in, scales_parameter(attrs) ? "., u!, ., ." : "., u!, .");
  };
  op.check = [](const Attrs& attrs, const Types& in) {
    check_count(attrs, in);
    check_hyper(in, 3);
  };
  op.in_place = {{0, 0}};
  op.no_grad = kIsUpdate;
  op.flops = per_element<3>;
  op.reference = PLAIT_REFERENCE(step);
  op.samples = step_samples;
  return op;
}

}  // namespace plait
