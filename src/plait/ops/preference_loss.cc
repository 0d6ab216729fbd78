// preference_loss: how much less the rejected answer of each pair is preferred than the chosen one.
//   nll [T], reference [T], weights [T], pairs i32 [T], pair_weight [] -> loss, margin, right []
// nll is the policy's loss of every token, reference that of the frozen model; both are minus the
// logarithm of a probability, so with w the weights (1 in answers, 0 in prompts and padding)
//
//   margin of a pair  m = sum over chosen w (reference - nll) - sum over rejected w (reference -
//   nll) loss              = pair_weight x sum over pairs of f(m) margin, right     = sum over
//   pairs of m, and how many pairs have m > 0: metrics, through which
//                       no gradient flows
//
// with f, where s(x) = log(1 + exp(x)):
//   variant 0, sigmoid  (1 - e) s(-beta m) + e s(beta m), e the label_smoothing
//                       (Rafailov et al., "Direct Preference Optimization", 2023)
//   variant 1, hinge    max(0, 1 - beta m)        (Zhao et al., "SLiC-HF", 2023)
//   variant 2, ipo      (m - 1 / (2 beta))^2      (Azar et al., 2023)
//
// pairs[t] is 2p + 1 where t is of the chosen text of pair p of its slot, 2p + 2 where it is of the
// rejected one, 0 where it is of no pair. Each text is a run of tokens; the rejected one follows
// its chosen one within the slot (a unit of T), so a shard of whole slots needs no other.
#include "plait/base/error.h"
#include "plait/ops/ops.h"

namespace plait {
namespace {

constexpr int64_t kVariants = 3;

// Calls pair(begin, middle, end) for the tokens of each: chosen before `middle`, rejected behind.
template <class F>
void for_each_pair(const TensorView& pairs, F pair) {
  const int32_t* id = pairs.as<int32_t>();
  const int64_t tokens = pairs.dims[0];
  const auto error = [&](int64_t t, const char* what) {
    fail("preference_loss: pairs[{}] is {}: {}", pairs.begin[0] + t, id[t], what);
  };
  const auto run_end = [&](int64_t t) {
    int64_t end = t;
    while (end < tokens && id[end] == id[t]) ++end;
    return end;
  };
  for (int64_t t = 0; t < tokens;) {
    if (id[t] == 0) {
      ++t;
      continue;
    }
    if (id[t] < 0 || id[t] % 2 == 0) error(t, "a rejected text without its chosen one before it");
    const int64_t begin = t, middle = run_end(t);
    int64_t next = middle;
    while (next < tokens && id[next] == 0) ++next;
    if (next == tokens || id[next] - 1 != id[begin])
      error(begin, "a chosen text without its rejected one behind it");
    t = run_end(next);
    pair(begin, middle, t);
  }
}

struct Form {
  int64_t variant;
  double beta, smoothing;
  explicit Form(const Attrs& attrs)
      : variant(static_cast<int64_t>(attr_or(attrs, "variant", 0))),
        beta(attr_or(attrs, "beta", 0.1)),
        smoothing(attr_or(attrs, "label_smoothing", 0)) {}
};

// log(1 + exp(x)), and its slope.
template <class T>
T softplus(T x) {
  using std::exp;
  using std::log;
  const bool above = x > T(0);
  const T rest = log(T(1) + exp(above ? -x : x));
  return above ? x + rest : rest;
}
template <class T>
T sigmoid(T x) {
  using std::exp;
  const bool above = x > T(0);
  const T e = exp(above ? -x : x);
  return (above ? T(1) : e) / (T(1) + e);
}

template <class T>
T loss_of(const Form& form, T m) {
  const T x = T(form.beta) * m;
  if (form.variant == 1) return x < T(1) ? T(1) - x : T(0);
  if (form.variant == 2) {
    const T away = m - T(1 / (2 * form.beta));
    return away * away;
  }
  return T(1 - form.smoothing) * softplus(-x) + T(form.smoothing) * softplus(x);
}

template <class T>
T slope_of(const Form& form, T m) {
  const T x = T(form.beta) * m;
  if (form.variant == 1) return x < T(1) ? T(-form.beta) : T(0);
  if (form.variant == 2) return T(2) * (m - T(1 / (2 * form.beta)));
  return T(form.beta) * (T(form.smoothing) * sigmoid(x) - T(1 - form.smoothing) * sigmoid(-x));
}

template <class T>
T margin_of(const KernelArgs& args, int64_t begin, int64_t middle, int64_t end) {
  const T *nll = args.in[0].as<T>(), *reference = args.in[1].as<T>(), *w = args.in[2].as<T>();
  const int32_t* id = args.in[3].as<int32_t>();
  T m = T(0);
  for (int64_t t = begin; t < end; ++t) {
    if (id[t] == 0) continue;
    const T gain = w[t] * (reference[t] - nll[t]);
    m = t < middle ? m + gain : m - gain;
  }
  return m;
}

template <class T>
void reference(const KernelArgs& args) {
  const Form form(*args.attrs);
  T loss = T(0), margin = T(0), right = T(0);
  for_each_pair(args.in[3], [&](int64_t begin, int64_t middle, int64_t end) {
    const T m = margin_of<T>(args, begin, middle, end);
    loss += loss_of(form, m);
    margin += m;
    right += m > T(0) ? T(1) : T(0);
  });
  *args.out[0].as<T>() = *args.in[4].as<T>() * loss;
  *args.out[1].as<T>() = margin;
  *args.out[2].as<T>() = right;
}

// slope[t] is the loss's derivative by w (reference - nll) of token t.
template <class T>
void grad_reference(const KernelArgs& args) {
  const Form form(*args.attrs);
  const int32_t* id = args.in[3].as<int32_t>();
  const T d_loss = *args.in[5].as<T>(), scale = *args.in[4].as<T>() * d_loss;
  T* slope = args.out[0].as<T>();
  std::fill_n(slope, args.out[0].elements(), T(0));
  T loss = T(0);
  for_each_pair(args.in[3], [&](int64_t begin, int64_t middle, int64_t end) {
    const T m = margin_of<T>(args, begin, middle, end);
    loss += loss_of(form, m);
    const T s = scale * slope_of(form, m);
    for (int64_t t = begin; t < end; ++t)
      if (id[t] != 0) slope[t] = t < middle ? s : -s;
  });
  *args.out[1].as<T>() = d_loss * loss;
}

void grad(GradContext& g) {
  if (g.d_out(0) == kNone) return;
  const std::vector<ValueId> d = g.emit(
      "preference_loss_grad", {g.in(0), g.in(1), g.in(2), g.in(3), g.in(4), g.d_out(0)}, g.attrs());
  if (g.needs(0) || g.needs(1)) {
    const ValueId toward = g.emit("mul", {d[0], g.in(2)})[0];
    if (g.needs(1)) g.add(1, toward);
    if (g.needs(0)) g.add(0, g.emit("scale", {toward}, {{"by", -1}})[0]);
  }
  if (g.needs(2)) g.add(2, g.emit("mul", {d[0], g.emit("sub", {g.in(1), g.in(0)})[0]})[0]);
  if (g.needs(4)) g.add(4, d[1]);
}

void check(const Attrs& attrs, const Types&) {
  const Form form(attrs);
  if (const double v = attr_or(attrs, "variant", 0);
      v != static_cast<double>(form.variant) || form.variant < 0 || form.variant >= kVariants)
    fail("variant={}: known are 0 (sigmoid), 1 (hinge), 2 (ipo)", v);
  if (!(form.beta > 0) || !std::isfinite(form.beta))
    fail("beta={}: must be a positive number", form.beta);
  if (!(form.smoothing >= 0 && form.smoothing < 0.5))
    fail("label_smoothing={}: must be at least 0 and below 0.5", form.smoothing);
  if (form.smoothing > 0 && form.variant != 0)
    fail("label_smoothing={}: only the variant 0 (sigmoid) has it", form.smoothing);
}

// A bound: pairs are at most half as many as tokens.
int64_t flops(const Attrs&, const Types& in) { return checked_mul(12, in[0].elements()) + 2; }
int64_t grad_flops(const Attrs&, const Types& in) { return checked_mul(20, in[0].elements()) + 4; }

std::vector<OpSample> samples(bool gradient) {
  std::vector<OpSample> all;
  const Extent t{"T", 24, 8};
  for (const Attrs& attrs : {Attrs{}, Attrs{{"beta", 0.5}, {"label_smoothing", 0.2}},
                             Attrs{{"variant", 1}}, Attrs{{"variant", 2}, {"beta", 0.7}}}) {
    OpSample s;
    const TensorType each{Dtype::f64, {t}}, scalar{Dtype::f64, {}};
    s.in = {each, each, each, {Dtype::i32, {t}}, scalar};
    if (gradient) s.in.push_back(scalar);
    s.attrs = attrs;
    // One pair; two pairs and padding; padding alone.
    s.integers = [](size_t, int64_t i) {
      static constexpr int32_t kPairs[24] = {1, 1, 1, 2, 2, 2, 2, 2, 1, 2, 2, 3,
                                             3, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0};
      return kPairs[i];
    };
    s.full = false;
    all.push_back(s);
  }
  return all;
}

}  // namespace

OpDef preference_loss_op() {
  OpDef op;
  op.name = "preference_loss";
  op.summary = "loss of preference pairs against a frozen reference (DPO, hinge, IPO)";
  op.attributes = {"beta", "label_smoothing", "variant"};
  op.rule = fixed_rule<"t, t, t, t, . -> ., ., .">;
  op.check = check;
  op.integer_operands = {3};
  op.grad = grad;
  op.flops = flops;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return samples(false); };
  return op;
}

OpDef preference_loss_grad_op() {
  OpDef op;
  op.name = "preference_loss_grad";
  op.summary = "slope of preference_loss for every token, and the loss of the shard";
  op.attributes = {"beta", "label_smoothing", "variant"};
  op.rule = fixed_rule<"t, t, t, t, ., . -> t, .">;
  op.check = check;
  op.integer_operands = {3};
  op.no_grad = kIsGradient;
  op.flops = grad_flops;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = [] { return samples(true); };
  return op;
}

}  // namespace plait
