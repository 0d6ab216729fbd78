// attention: causal softmax attention inside each sequence; grouped heads.
//   q [T, H], k [T, G], v [T, G], sequences i32 [T] -> o [T, H], lse [T, heads]
// H = heads x head_size, G = key/value heads x head_size; heads / key/value heads consecutive
// query heads share one key/value head. Token i attends to the tokens j <= i of its sequence:
// tokens of one sequence are contiguous and have one id, neighbouring sequences have different
// ids, and no sequence crosses a unit of T (a slot), so a shard of whole slots needs no other.
//   scale     of the scores; left out: 1 / sqrt(head_size)
//   soft_cap  scores s become cap tanh(s / cap); 0: they do not (Gemma 2)
//   window    token i attends to i - j < window only; 0: to all before it (Mistral)
// lse is the log-sum-exp of these scores, kept for the gradient, which recomputes
// p = exp(score - lse) (Dao et al., "FlashAttention", 2022).
//
// Two ways to split heads. Query heads with their key/value heads, in equal shares. Or, where
// there are too few key/value heads for that, query heads alone: every rank holds k and v whole,
// finds the head that it needs by its query heads' place in the whole, and its gradients of k and
// v are terms of a sum.
#include "plait/ops/attention.h"

#include "plait/ops/ops.h"

namespace plait {
namespace {

struct Shape {
  int64_t size, tokens, heads, kv_heads;
  int64_t group;              // query heads for each key/value head
  int64_t first_q, first_kv;  // first heads here, counted in the whole
  int64_t window;
  double scale, cap;
  explicit Shape(const KernelArgs& args)
      : size(whole_attr(*args.attrs, "head_size", 1)),
        tokens(args.in[0].dims[0]),
        heads(args.in[0].dims[1] / size),
        kv_heads(args.in[1].dims[1] / size),
        group(args.in[0].global[1] / std::max<int64_t>(1, args.in[1].global[1])),
        first_q(args.in[0].begin[1] / size),
        first_kv(args.in[1].begin[1] / size),
        window(static_cast<int64_t>(attr_or(*args.attrs, "window", 0))),
        scale(attr_or(*args.attrs, "scale", 1 / std::sqrt(static_cast<double>(size)))),
        cap(attr_or(*args.attrs, "soft_cap", 0)) {}
  // Offset of the values of query head h, and of its key/value head, at token t.
  int64_t q(int64_t t, int64_t h) const { return (t * heads + h) * size; }
  int64_t kv(int64_t t, int64_t h) const {
    return (t * kv_heads + (first_q + h) / group - first_kv) * size;
  }
  // The first token that token i attends to.
  int64_t first(const int32_t* sequences, int64_t i) const {
    const int64_t low = window == 0 ? 0 : std::max<int64_t>(0, i - window + 1);
    int64_t first = i;
    while (first > low && sequences[first - 1] == sequences[i]) --first;
    return first;
  }
};

// A score, and with a cap the tanh in it, which its gradient needs.
template <class T>
struct Score {
  T value, tanh_value;
};

template <class T>
Score<T> score(const Shape& n, T product) {
  using std::tanh;
  const T s = product * T(n.scale);
  if (n.cap == 0) return {s, T(0)};
  const T t = tanh(s * T(1 / n.cap));
  return {T(n.cap) * t, t};
}

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  T sum = T(0);
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
void reference(const KernelArgs& args) {
  using std::exp;
  using std::log;
  const Shape n(args);
  const T *q = args.in[0].as<T>(), *k = args.in[1].as<T>(), *v = args.in[2].as<T>();
  const int32_t* sequences = args.in[3].as<int32_t>();
  T *o = args.out[0].as<T>(), *lse = args.out[1].as<T>();
  T* scores = static_cast<T*>(args.workspace);
  for (int64_t i = 0; i < n.tokens; ++i) {
    const int64_t first = n.first(sequences, i);
    for (int64_t h = 0; h < n.heads; ++h) {
      T top = T(-std::numeric_limits<double>::infinity());
      for (int64_t j = first; j <= i; ++j) {
        T& s = scores[j - first];
        s = score(n, dot(q + n.q(i, h), k + n.kv(j, h), n.size)).value;
        if (s > top) top = s;
      }
      T* oi = o + n.q(i, h);
      std::fill_n(oi, n.size, T(0));
      T sum = T(0);
      for (int64_t j = first; j <= i; ++j) {
        const T p = exp(scores[j - first] - top);
        sum += p;
        for (int64_t c = 0; c < n.size; ++c) oi[c] += p * v[n.kv(j, h) + c];
      }
      const T inverse = T(1) / sum;
      for (int64_t c = 0; c < n.size; ++c) oi[c] *= inverse;
      lse[i * n.heads + h] = top + log(sum);
    }
  }
}

template <class T>
void grad_reference(const KernelArgs& args) {
  using std::exp;
  const Shape n(args);
  const T *q = args.in[0].as<T>(), *k = args.in[1].as<T>(), *v = args.in[2].as<T>();
  const int32_t* sequences = args.in[3].as<int32_t>();
  const T *o = args.in[4].as<T>(), *lse = args.in[5].as<T>(), *d_o = args.in[6].as<T>();
  T *dq = args.out[0].as<T>(), *dk = args.out[1].as<T>(), *dv = args.out[2].as<T>();
  for (const TensorView& d : args.out) std::fill_n(d.as<T>(), d.elements(), T(0));
  for (int64_t i = 0; i < n.tokens; ++i) {
    const int64_t first = n.first(sequences, i);
    for (int64_t h = 0; h < n.heads; ++h) {
      const int64_t at = n.q(i, h);
      const T delta = dot(d_o + at, o + at, n.size);
      for (int64_t j = first; j <= i; ++j) {
        const int64_t to = n.kv(j, h);
        const Score<T> s = score(n, dot(q + at, k + to, n.size));
        const T p = exp(s.value - lse[i * n.heads + h]);
        T ds = p * (dot(d_o + at, v + to, n.size) - delta) * T(n.scale);
        if (n.cap != 0) ds *= T(1) - s.tanh_value * s.tanh_value;
        for (int64_t c = 0; c < n.size; ++c) {
          dv[to + c] += p * d_o[at + c];
          dq[at + c] += ds * k[to + c];
          dk[to + c] += ds * q[at + c];
        }
      }
    }
  }
}

void check(const Attrs& attrs, const Types& in) {
  const int64_t size = whole_attr(attrs, "head_size", 1);
  for (const size_t i : {0, 1, 2})
    if (in[i].dims[1].unit != size || in[i].dims[1].size % size != 0)
      fail("operand {}: found {}, expected its width in units of the head size {}", i,
           to_string(in[i]), size);
  if (!in[1].dims[1].same_size(in[2].dims[1]))
    fail("operand 2: found {}, expected {} like the keys", to_string(in[2]), to_string(in[1]));
  const int64_t heads = in[0].dims[1].units(), kv_heads = in[1].dims[1].units();
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0)
    fail("found {} query heads over {} key/value heads, expected a multiple", heads, kv_heads);
  if (attrs.contains("window")) whole_attr(attrs, "window", 0);
  if (const double cap = attr_or(attrs, "soft_cap", 0); !(cap >= 0))
    fail("attribute 'soft_cap': found {}, expected 0 or a number above it", cap);
  if (const double scale = attr_or(attrs, "scale", 1); !(scale > 0))
    fail("attribute 'scale': found {}, expected a number above 0", scale);
}

void grad_check(const Attrs& attrs, const Types& in) {
  check(attrs, in);
  for (const size_t i : {4, 6})
    if (!in[i].dims[1].same_size(in[0].dims[1]))
      fail("operand {}: found {}, expected {} like the queries", i, to_string(in[i]),
           to_string(in[0]));
  if (!in[5].dims[1].same_size({"", in[0].dims[1].units()}))
    fail("operand 5: found {}, expected one value for each of {} heads", to_string(in[5]),
         in[0].dims[1].units());
}

Types infer(const Attrs&, const Types& in) {
  const Extent heads{"", in[0].dims[1].units()};
  return {in[0], {wide(in[0].dtype), {in[0].dims[0], heads}}};
}

Types grad_infer(const Attrs&, const Types& in) { return {in[0], in[1], in[2]}; }

int64_t slot_tokens(const Types& in) {
  return std::max<int64_t>(1, std::min(in[0].dims[0].size, in[0].dims[0].unit));
}

// Operations of one call whose slots hold one full-length sequence each, the most there can be,
// from those for each head and (token, token attended to), and for each head and token.
int64_t operations(const Attrs& attrs, const Types& in, int64_t per_pair, int64_t per_token) {
  const int64_t rows = checked_mul(in[0].dims[0].size, in[0].dims[1].units());
  const int64_t slot = slot_tokens(in);
  // Without a window, (slot + 1) / 2 for each token; a window takes the triangle beyond it away.
  int64_t pairs = checked_mul(rows, slot + 1) / 2;
  const auto window = static_cast<int64_t>(attr_or(attrs, "window", 0));
  if (window > 0 && window < slot) {
    const int64_t beyond = checked_mul(slot - window, slot - window + 1) / 2;
    pairs -= checked_mul(rows / slot, beyond);
  }
  return checked_add(checked_mul(pairs, per_pair), checked_mul(rows, per_token));
}

int64_t flops(const Attrs& attrs, const Types& in) {
  const int64_t size = in[0].dims[1].unit, cap = attr_or(attrs, "soft_cap", 0) != 0 ? 3 : 0;
  return operations(attrs, in, 4 * size + 4 + cap, size + 3);
}

int64_t grad_flops(const Attrs& attrs, const Types& in) {
  const int64_t size = in[0].dims[1].unit, cap = attr_or(attrs, "soft_cap", 0) != 0 ? 6 : 0;
  return operations(attrs, in, 10 * size + 6 + cap, 2 * size);
}

// A row of scores for the reference; for fast kernels the borders of the sequences, and blocks for
// each thread. Never a score for each pair of tokens.
int64_t workspace_of(const Types& in, int threads, int64_t thread_bytes) {
  const int64_t tokens = in[0].dims[0].size;
  const int64_t borders = checked_add(checked_mul(tokens, 4), 1024);
  return std::max(dtype_bytes(in[0].dtype, tokens),
                  checked_add(borders, checked_mul(threads, thread_bytes)));
}

int64_t workspace(const Attrs& attrs, const Types& in, int threads) {
  return workspace_of(in, threads, attention_thread_bytes(whole_attr(attrs, "head_size", 1)));
}

// With 16-bit tensors, dq, dk and dv of some heads in f32 too.
int64_t grad_workspace(const Attrs& attrs, const Types& in, int threads) {
  const int64_t size = whole_attr(attrs, "head_size", 1), tokens = in[0].dims[0].size;
  const int64_t bytes = workspace_of(in, threads, attention_grad_thread_bytes(size));
  if (dtype_bytes(in[0].dtype, 1) >= 4) return bytes;
  const int64_t heads = attention_grad_heads(tokens, in[1].dims[1].size / size, threads);
  return checked_add(bytes, checked_mul(checked_mul(12 * size, heads), tokens));
}

void grad(GradContext& g) {
  if (g.d_out(1) != kNone)
    fail("op 'attention': result 1, the log-sum-exp, has no gradient; use result 0 only");
  const auto d =
      g.emit("attention_grad", {g.in(0), g.in(1), g.in(2), g.in(3), g.out(0), g.out(1), g.d_out(0)},
             g.attrs());
  for (size_t i = 0; i < d.size(); ++i) g.add(i, d[i]);
}

std::vector<OpSample> samples() {
  auto sample = [](int64_t slots, int64_t slot, int64_t heads, int64_t kv_heads, int64_t size) {
    const Extent t{"T", slots * slot, slot}, h{"H", heads * size, size},
        g{"G", kv_heads * size, size};
    return one_sample(
        {{Dtype::f64, {t, h}}, {Dtype::f64, {t, g}}, {Dtype::f64, {t, g}}, {Dtype::i32, {t}}},
        {{"head_size", static_cast<double>(size)}})[0];
  };
  std::vector<OpSample> all = {sample(3, 4, 4, 2, 3), sample(4, 6, 4, 4, 2), sample(2, 5, 6, 3, 2)};
  all[0].integers = [](size_t, int64_t i) { return static_cast<int32_t>(i / 4); };
  all[1].integers = [](size_t, int64_t i) { return static_cast<int32_t>(i / 2 % 7 + i / 6); };
  all[2].integers = [](size_t, int64_t i) { return static_cast<int32_t>(i < 2 ? 9 : i / 5); };
  all[1].full = all[2].full = false;
  all.push_back(sample(2, 7, 4, 1, 2));
  all.back().attrs.insert({{"window", 3}, {"soft_cap", 1.5}, {"scale", 0.9}});
  all.back().integers = [](size_t, int64_t i) { return static_cast<int32_t>(i / 7); };
  all.push_back(sample(2, 6, 3, 3, 2));
  all.back().attrs["window"] = 2;
  all.back().integers = [](size_t, int64_t i) { return static_cast<int32_t>(i < 4 ? 5 : i / 6); };
  all.back().full = false;
  return all;
}

std::vector<OpSample> grad_samples() {
  std::vector<OpSample> all = samples();
  for (OpSample& s : all) {
    const Types out = infer(s.attrs, s.in);
    s.in.insert(s.in.end(), {out[0], out[1], out[0]});
  }
  return all;
}

}  // namespace

OpDef attention_op() {
  OpDef op;
  op.name = "attention";
  op.attributes = {"head_size", "window", "soft_cap", "scale"};
  op.summary = "causal attention inside each sequence";
  op.rule = fixed_rule<
      "t ~h, t ~h, t ~h, t -> t ~h, ^t ~h |"
      "t ~h, t g!, t g!, t -> t ~h, ^t ~h">;
  op.infer = infer;
  op.check = check;
  op.integer_operands = {3};
  op.grad = grad;
  op.flops = flops;
  op.workspace = workspace;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  return op;
}

OpDef attention_grad_op() {
  OpDef op;
  op.name = "attention_grad";
  op.attributes = {"head_size", "window", "soft_cap", "scale"};
  op.summary = "gradients of q, k and v from the saved o and lse";
  op.rule = fixed_rule<
      "t ~h, t ~h, t ~h, t, t ~h, ^t ~h, t ~h -> t ~h, t ~h, t ~h |"
      "t ~h, t g!, t g!, t, t ~h, ^t ~h, t ~h -> t ~h, t g!, t g!">;
  op.infer = grad_infer;
  op.check = grad_check;
  op.integer_operands = {3};
  op.no_grad = kIsGradient;
  op.flops = grad_flops;
  op.workspace = grad_workspace;
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = grad_samples;
  return op;
}

}  // namespace plait
