// rms_norm: y = x r (offset + w) with r = 1 / sqrt(mean(x^2) + eps)   x [T, D], w [D] -> [T, D]
// (Zhang and Sennrich, "Root mean square layer normalization", 2019)
//   offset     left out: 0; Gemma stores w - 1
//   head_size  the mean is over each head of so many values, and w [head_size] serves all heads:
//              x [T, H], w [K] -> [T, H]. Heads may then be split; w's gradient is a sum over them.
#include "plait/ops/ops.h"
#include "plait/ops/row_blocks.h"

namespace plait {
namespace {

bool by_head(const Attrs& attrs) { return attrs.contains("head_size"); }

// The rows over which the mean is taken: whole ones, or heads.
struct Rows {
  int64_t count, width;
  double eps, offset;
  Rows(const Attrs& attrs, const TensorView& x)
      : count(x.dims[0]),
        width(x.dims[1]),
        eps(attr(attrs, "eps")),
        offset(attr_or(attrs, "offset", 0)) {
    if (!by_head(attrs)) return;
    const int64_t size = whole_attr(attrs, "head_size", 1);
    count *= width / size;
    width = size;
  }
  template <class T>
  T factor(T w) const {
    return offset == 0 ? w : w + T(offset);
  }
};

template <class T>
T inverse_rms(const T* x, const Rows& rows) {
  using std::sqrt;
  T sum = T(0);
  for (int64_t j = 0; j < rows.width; ++j) sum += x[j] * x[j];
  return T(1) / sqrt(sum / T(static_cast<double>(rows.width)) + T(rows.eps));
}

template <class T>
void reference(const KernelArgs& args) {
  const Rows rows(*args.attrs, args.in[0]);
  const T* w = args.in[1].as<T>();
  for (int64_t i = 0; i < rows.count; ++i) {
    const T* x = args.in[0].as<T>() + i * rows.width;
    T* y = args.out[0].as<T>() + i * rows.width;
    const T r = inverse_rms(x, rows);
    for (int64_t j = 0; j < rows.width; ++j) y[j] = x[j] * r * rows.factor(w[j]);
  }
}

// dx = r (w dy - x r^2 mean(w dy x)), w with its offset
template <class T>
void grad_x_reference(const KernelArgs& args) {
  const Rows rows(*args.attrs, args.in[0]);
  const T* w = args.in[1].as<T>();
  for (int64_t i = 0; i < rows.count; ++i) {
    const T* x = args.in[0].as<T>() + i * rows.width;
    const T* dy = args.in[2].as<T>() + i * rows.width;
    T* dx = args.out[0].as<T>() + i * rows.width;
    const T r = inverse_rms(x, rows);
    T sum = T(0);
    for (int64_t j = 0; j < rows.width; ++j) sum += rows.factor(w[j]) * dy[j] * x[j];
    const T common = sum * r * r / T(static_cast<double>(rows.width));
    for (int64_t j = 0; j < rows.width; ++j)
      dx[j] = r * (rows.factor(w[j]) * dy[j] - x[j] * common);
  }
}

// dw = sum over tokens (and heads) of dy x r
template <class T>
void grad_w_reference(const KernelArgs& args) {
  const Rows rows(*args.attrs, args.in[0]);
  T* dw = args.out[0].as<T>();
  std::fill_n(dw, rows.width, T(0));
  for (int64_t i = 0; i < rows.count; ++i) {
    const T* x = args.in[0].as<T>() + i * rows.width;
    const T* dy = args.in[1].as<T>() + i * rows.width;
    const T r = inverse_rms(x, rows);
    for (int64_t j = 0; j < rows.width; ++j) dw[j] += dy[j] * x[j] * r;
  }
}

template <int64_t per_value, int64_t per_row, int64_t factors>
int64_t flops(const Attrs& attrs, const Types& in) {
  const int64_t width = by_head(attrs) ? whole_attr(attrs, "head_size", 1) : in[0].dims[1].size;
  const int64_t each = per_value + (attr_or(attrs, "offset", 0) != 0 ? factors : 0);
  const int64_t rows = width == 0 ? in[0].dims[0].size : in[0].elements() / width;
  return checked_mul(rows, checked_mul(each, width) + per_row);
}

std::string rule(const Attrs& attrs, const Types&) {
  return by_head(attrs) ? "t h, ^k! -> t h" : "t d!, ^d! -> t d!";
}
std::string grad_x_rule(const Attrs& attrs, const Types&) {
  return by_head(attrs) ? "t h, ^k!, t h -> t h" : "t d!, ^d!, t d! -> t d!";
}
// By heads, there is a third operand: the weight, for its shape only.
std::string grad_w_rule(const Attrs& attrs, const Types&) {
  return by_head(attrs) ? "t h, t h, ^k! -> ^k!" : "t d!, t d! -> ^d!";
}

template <size_t weight>
void check(const Attrs& attrs, const Types& in) {
  if (!by_head(attrs)) return;
  const int64_t size = whole_attr(attrs, "head_size", 1);
  if (in[0].dims[1].unit % size != 0)
    fail("operand 0: found {}, expected its width in units of the head size {}", to_string(in[0]),
         size);
  if (in[weight].dims[0].size != size)
    fail("operand {}: found {}, expected {} values, one head's", weight, to_string(in[weight]),
         size);
}

void grad(GradContext& g) {
  const ValueId x = g.in(0), w = g.in(1), dy = g.d_out(0);
  if (g.needs(0)) g.add(0, g.emit("rms_norm_grad_x", {x, w, dy}, g.attrs())[0]);
  if (!g.needs(1)) return;
  std::vector<ValueId> operands = {x, dy};
  if (by_head(g.attrs())) operands.push_back(w);
  g.add(1, g.emit("rms_norm_grad_w", operands, g.attrs())[0]);
}

int64_t grad_w_workspace(const Attrs& attrs, const Types& in, int) {
  const int64_t width = by_head(attrs) ? whole_attr(attrs, "head_size", 1) : in[0].dims[1].size;
  return row_blocks_bytes(width == 0 ? 0 : in[0].elements() / width, width);
}

// Calls with rows (x or dy) where `order` says x, a weight where it says w, and where it says s a
// weight that gives its shape only, by heads.
std::vector<OpSample> samples(std::string_view order) {
  const auto call = [&](const Extent& width, const Extent& weight, const Attrs& attrs) {
    Types in;
    for (const char c : order)
      if (c != 's' || by_head(attrs))
        in.push_back(c == 'x' ? TensorType{Dtype::f64, {{"T", 7}, width}}
                              : TensorType{Dtype::f64, {weight}});
    OpSample s = one_sample(in, attrs)[0];
    if (order.back() == 's' && by_head(attrs)) s.unused = {order.size() - 1};
    return s;
  };
  const Extent d{"D", 6, 2}, h{"H", 12, 3}, k{"K", 3};
  return {call(d, d, {{"eps", 1e-5}}), call(d, d, {{"eps", 1e-5}, {"offset", 1}}),
          call(h, k, {{"eps", 1e-5}, {"head_size", 3}}),
          call(h, k, {{"eps", 1e-4}, {"head_size", 3}, {"offset", 0.5}})};
}

OpDef record(std::string_view name, std::string_view summary) {
  OpDef op;
  op.name = name;
  op.summary = summary;
  op.attributes = {"eps", "offset", "head_size"};
  return op;
}

}  // namespace

OpDef rms_norm_op() {
  OpDef op = record("rms_norm", "rows, or heads, over their root mean square, times a weight");
  op.rule = rule;
  op.check = check<1>;
  op.grad = grad;
  op.flops = flops<4, 4, 1>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return samples("xw"); };
  return op;
}

OpDef rms_norm_grad_x_op() {
  OpDef op = record("rms_norm_grad_x", "gradient of rms_norm's input");
  op.rule = grad_x_rule;
  op.check = check<1>;
  op.no_grad = kIsGradient;
  op.flops = flops<9, 7, 2>;
  op.reference = PLAIT_REFERENCE(grad_x_reference);
  op.samples = [] { return samples("xwx"); };
  return op;
}

OpDef rms_norm_grad_w_op() {
  OpDef op = record("rms_norm_grad_w", "gradient of rms_norm's weight");
  op.rule = grad_w_rule;
  op.check = check<2>;
  op.no_grad = kIsGradient;
  op.flops = flops<5, 4, 0>;
  op.workspace = grad_w_workspace;
  op.reference = PLAIT_REFERENCE(grad_w_reference);
  op.samples = [] { return samples("xxs"); };
  return op;
}

}  // namespace plait
