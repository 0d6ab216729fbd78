// rope: rotary positions (Su et al., "RoFormer", 2021), halves paired as at Hugging Face.
//   x [T, H], positions i32 [T] -> [T, H]
// In each head of head_size values, the pair (i, i + head_size / 2) turns by
// position x theta^(-2 i / head_size); backwards when the attribute inverse is 1.
#include "plait/ops/ops.h"

namespace plait {
namespace {

template <class T>
void reference(const KernelArgs& args) {
  const int64_t size = whole_attr(*args.attrs, "head_size", 2), half = size / 2;
  const double theta = attr(*args.attrs, "theta");
  const double turn = attr_or(*args.attrs, "inverse", 0) != 0 ? -1 : 1;
  const int64_t tokens = args.in[0].dims[0], width = args.in[0].dims[1];
  const int32_t* positions = args.in[1].as<int32_t>();
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / size);
    for (int64_t t = 0; t < tokens; ++t) {
      const double angle = turn * positions[t] * frequency;
      const T c = T(std::cos(angle)), s = T(std::sin(angle));
      for (int64_t head = 0; head < width; head += size) {
        const T* x = args.in[0].as<T>() + t * width + head;
        T* y = args.out[0].as<T>() + t * width + head;
        const T low = x[i], high = x[i + half];
        y[i] = low * c - high * s;
        y[i + half] = high * c + low * s;
      }
    }
  }
}

void check(const Attrs& attrs, const Types& in) {
  const int64_t size = whole_attr(attrs, "head_size", 2);
  const Extent& h = in[0].dims[1];
  if (size % 2 != 0) fail("found head size {}, expected an even one", size);
  if (h.unit % size != 0)
    fail("operand 0: found {}, expected its width in units of the head size {}", to_string(in[0]),
         size);
  if (!(attr(attrs, "theta") > 0)) fail("found theta {}, expected above 0", attr(attrs, "theta"));
}

void grad(GradContext& g) {
  Attrs attrs = g.attrs();
  attrs["inverse"] = attr_or(attrs, "inverse", 0) != 0 ? 0 : 1;
  g.add(0, g.emit("rope", {g.d_out(0), g.in(1)}, attrs)[0]);
}

std::vector<OpSample> samples() {
  const Extent t{"T", 7}, h{"H", 12, 4};
  std::vector<OpSample> all =
      one_sample({{Dtype::f64, {t, h}}, {Dtype::i32, {t}}}, {{"head_size", 4}, {"theta", 100}});
  all[0].integers = [](size_t, int64_t i) { return static_cast<int32_t>(3 * i); };
  all.push_back(all[0]);
  all[1].attrs["inverse"] = 1;
  return all;
}

}  // namespace

OpDef rope_op() {
  OpDef op;
  op.name = "rope";
  op.attributes = {"head_size", "theta", "inverse"};
  op.summary = "rotary position embedding";
  op.rule = fixed_rule<"t h, t -> t h">;
  op.check = check;
  op.integer_operands = {1};
  op.grad = grad;
  op.flops = per_element<3>;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = samples;
  return op;
}

}  // namespace plait
