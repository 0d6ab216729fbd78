// rope: rotary positions (Su et al., "RoFormer", 2021).
//   x [T, H], positions i32 [T] -> [T, H]
// In each head of head_size values, pair i turns by position x frequency i and grows by magnitude:
//   frequencies  a list, one for each pair; or
//   theta        for theta^(-2 i / rotary_size)
//   rotary_size  so many values of each head turn, its first; the others pass. Left out: all
//   interleaved  1: pairs are (2 i, 2 i + 1). Left out: (i, i + rotary_size / 2), as at Hugging
//   Face magnitude    of the turned values (YaRN); left out: 1 inverse      1: the transpose of the
//   above, which is the gradient
#include "plait/ops/ops.h"

namespace plait {
namespace {

struct Turns {
  int64_t size, rotary, pairs;
  int64_t stride;  // from one pair to the next
  int64_t apart;   // from the first of a pair to the second
  double magnitude, sign;
  const std::vector<double>* frequencies;
  double theta;
  explicit Turns(const Attrs& attrs)
      : size(whole_attr(attrs, "head_size", 2)),
        rotary(attrs.contains("rotary_size") ? whole_attr(attrs, "rotary_size", 2) : size),
        pairs(rotary / 2),
        magnitude(attr_or(attrs, "magnitude", 1)),
        sign(attr_or(attrs, "inverse", 0) != 0 ? -1 : 1),
        frequencies(list_attr(attrs, "frequencies")),
        theta(frequencies != nullptr ? 1 : attr(attrs, "theta")) {
    const bool interleaved = attr_or(attrs, "interleaved", 0) != 0;
    stride = interleaved ? 2 : 1;
    apart = interleaved ? 1 : pairs;
  }
  double frequency(int64_t pair) const {
    if (frequencies != nullptr) return (*frequencies)[static_cast<size_t>(pair)];
    return std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary));
  }
};

template <class T>
void reference(const KernelArgs& args) {
  const Turns n(*args.attrs);
  const int64_t tokens = args.in[0].dims[0], width = args.in[0].dims[1];
  const int32_t* positions = args.in[1].as<int32_t>();
  const T* x = args.in[0].as<T>();
  T* y = args.out[0].as<T>();
  for (int64_t pair = 0; pair < n.pairs; ++pair) {
    const double frequency = n.frequency(pair);
    for (int64_t t = 0; t < tokens; ++t) {
      const double angle = n.sign * positions[t] * frequency;
      const T c = T(n.magnitude * std::cos(angle)), s = T(n.magnitude * std::sin(angle));
      for (int64_t head = 0; head < width; head += n.size) {
        const int64_t at = t * width + head + pair * n.stride;
        const T low = x[at], high = x[at + n.apart];
        y[at] = low * c - high * s;
        y[at + n.apart] = high * c + low * s;
      }
    }
  }
  for (int64_t head = 0; head < tokens * width; head += n.size)
    std::copy(x + head + n.rotary, x + head + n.size, y + head + n.rotary);
}

void check(const Attrs& attrs, const Types& in) {
  const int64_t size = whole_attr(attrs, "head_size", 2);
  const Extent& h = in[0].dims[1];
  if (h.unit % size != 0)
    fail("operand 0: found {}, expected its width in units of the head size {}", to_string(in[0]),
         size);
  if (attrs.contains("theta") == attrs.contains("frequencies"))
    fail("expected either 'theta' or 'frequencies'");
  const Turns n(attrs);
  if (!attrs.contains("rotary_size") && size % 2 != 0)
    fail("found head size {}, expected an even one", size);
  if (n.rotary % 2 != 0 || n.rotary > size)
    fail("found rotary_size {}, expected an even number up to the head size {}", n.rotary, size);
  if (!(n.theta > 0)) fail("found theta {}, expected above 0", n.theta);
  if (n.frequencies != nullptr && static_cast<int64_t>(n.frequencies->size()) != n.pairs)
    fail("found {} frequencies for {} pairs of {} values", n.frequencies->size(), n.pairs,
         n.rotary);
}

void grad(GradContext& g) {
  Attrs attrs = g.attrs();
  attrs["inverse"] = attr_or(attrs, "inverse", 0) != 0 ? 0 : 1;
  g.add(0, g.emit("rope", {g.d_out(0), g.in(1)}, attrs)[0]);
}

int64_t flops(const Attrs& attrs, const Types& in) {
  const Turns n(attrs);
  return checked_mul(in[0].elements() / n.size, 3 * n.rotary);
}

std::vector<OpSample> samples() {
  const Extent t{"T", 7}, h{"H", 12, 4}, wide{"H", 18, 6};
  std::vector<OpSample> all;
  const auto sample = [&](const Extent& width, const Attrs& attrs) {
    all.push_back(one_sample({{Dtype::f64, {t, width}}, {Dtype::i32, {t}}}, attrs)[0]);
    all.back().integers = [](size_t, int64_t i) { return static_cast<int32_t>(3 * i); };
  };
  const std::vector<double> two = {0.7, -0.01};
  sample(h, {{"head_size", 4}, {"theta", 100}});
  sample(h, {{"head_size", 4}, {"theta", 100}, {"inverse", 1}, {"magnitude", 1.3}});
  sample(h, {{"head_size", 4}, {"frequencies", two}, {"interleaved", 1}, {"magnitude", 0.8}});
  sample(wide, {{"head_size", 6}, {"frequencies", two}, {"rotary_size", 4}});
  sample(wide, {{"head_size", 6}, {"theta", 50}, {"rotary_size", 2}, {"interleaved", 1}});
  return all;
}

}  // namespace

OpDef rope_op() {
  OpDef op;
  op.name = "rope";
  op.attributes = {"head_size",   "theta",     "frequencies[]", "rotary_size",
                   "interleaved", "magnitude", "inverse"};
  op.summary = "rotary position embedding";
  op.rule = fixed_rule<"t h, t -> t h">;
  op.check = check;
  op.integer_operands = {1};
  op.grad = grad;
  op.flops = flops;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  return op;
}

}  // namespace plait
