// embedding: y[t] = table[ids[t]]   table [V, D], ids i32 [T] -> [T, D]
// embedding_grad with the attribute wide = 1 gives f32 where the operands are bf16.
// A shard of the table adds zeros for ids of other shards, so splitting V gives pending sums.
#include "plait/ops/ops.h"

namespace plait {
namespace {

// Calls row(t, v) for every token whose id is row v of this shard of the table.
template <class Row>
void for_each_row(std::string_view op, const TensorView& table, const TensorView& ids, Row row) {
  for (int64_t t = 0; t < ids.dims[0]; ++t) {
    const int64_t id = ids.as<int32_t>()[t];
    check_id(op, id, ids.begin[0] + t, table.global[0]);
    const int64_t v = id - table.begin[0];
    if (v >= 0 && v < table.dims[0]) row(t, v);
  }
}

template <class T>
void reference(const KernelArgs& args) {
  const T* table = args.in[0].as<T>();
  T* y = args.out[0].as<T>();
  const int64_t d = args.out[0].dims[1];
  std::fill_n(y, args.out[0].elements(), T(0));
  for_each_row("embedding", args.in[0], args.in[1],
               [&](int64_t t, int64_t v) { std::copy_n(table + v * d, d, y + t * d); });
}

template <class T>
void grad_reference(const KernelArgs& args) {
  const T* dy = args.in[2].as<T>();
  T* dtable = args.out[0].as<T>();
  const int64_t d = args.out[0].dims[1];
  std::fill_n(dtable, args.out[0].elements(), T(0));
  for_each_row("embedding_grad", args.in[0], args.in[1], [&](int64_t t, int64_t v) {
    for (int64_t j = 0; j < d; ++j) dtable[v * d + j] += dy[t * d + j];
  });
}

void grad(GradContext& g) { g.add(0, g.emit("embedding_grad", {g.in(0), g.in(1), g.d_out(0)})[0]); }

OpSample sample() {
  const Extent v{"V", 7}, d{"D", 6, 2}, t{"T", 5};
  OpSample s;
  s.in = {{Dtype::f64, {v, d}}, {Dtype::i32, {t}}};
  s.integers = [](size_t, int64_t i) { return static_cast<int32_t>(i * 3 % 7); };
  return s;
}

std::vector<OpSample> grad_samples() {
  OpSample s = sample();
  s.in.push_back({Dtype::f64, {s.in[1].dims[0], s.in[0].dims[1]}});
  s.unused = {0};
  OpSample wide = s;
  wide.attrs[kWide] = 1;
  return {s, wide};
}

}  // namespace

OpDef embedding_op() {
  OpDef op;
  op.name = "embedding";
  op.summary = "rows of a table by token id";
  op.rule = fixed_rule<"v d, t -> t d">;
  op.integer_operands = {1};
  op.grad = grad;
  op.flops = no_flops;
  op.reference = PLAIT_REFERENCE(reference);
  op.samples = [] { return std::vector<OpSample>{sample()}; };
  return op;
}

OpDef embedding_grad_op() {
  OpDef op;
  op.name = "embedding_grad";
  op.summary = "gradient of embedding's table; the table gives its shape only";
  op.attributes = {kWide};
  op.rule = [](const Attrs& attrs, const Types&) {
    return std::string("v d, t, t d -> ") + (attr_or(attrs, kWide, 0) != 0 ? "^v d" : "v d");
  };
  op.integer_operands = {1};
  op.no_grad = kIsGradient;
  op.flops = [](const Attrs&, const Types& in) { return in[2].elements(); };
  // Tokens in the order of their ids.
  op.workspace = [](const Attrs&, const Types& in, int) {
    return checked_mul(8, in[1].elements());
  };
  op.reference = PLAIT_REFERENCE(grad_reference);
  op.samples = grad_samples;
  return op;
}

}  // namespace plait
