#include "plait/model/model.h"

#include <gtest/gtest.h>

#include "plait/model/families.h"

namespace plait {
namespace {

TEST(Model, OtherElementType) {
  const Model m = load_model("llama-tiny", {2, 8}, Head::loss);
  const Model d = with_dtype(m, Dtype::f64);
  EXPECT_EQ(d.dtype, Dtype::f64);
  EXPECT_EQ(d.params[0].type.dtype, Dtype::f64);
  EXPECT_EQ(d.values[static_cast<size_t>(d.loss)].type.dtype, Dtype::f64);
  EXPECT_EQ(d.values[0].type.dtype, Dtype::i32);
  EXPECT_EQ(print_model(with_dtype(d, Dtype::f32)), print_model(m));
  EXPECT_THROW(with_dtype(m, Dtype::i32), Error);
}

TEST(Model, OtherExtent) {
  const Model m = load_model("gpt2-tiny", {2, 8}, Head::loss);
  const Model longer = with_extent(m, "T", 96, 32);
  EXPECT_EQ(print_model(longer), print_model(load_model("gpt2-tiny", {3, 32}, Head::loss)));
  EXPECT_EQ(longer.config_json, m.config_json);
  const Model wider = with_extent(m, "F", 64, 1);
  EXPECT_EQ(wider.params[wider.param_index("transformer.h.0.mlp.c_fc.weight")].type.dims[0].size,
            64);
  EXPECT_EQ(wider.config_json, "");  // it describes other parameters
  EXPECT_THROW(with_extent(m, "T", 96, 36), Error);
  EXPECT_THROW(with_extent(m, "Z", 96, 32), Error);
  EXPECT_THROW(with_extent(m, "H", 48, 8), Error);  // no longer fits q, k and v in the file
}

TEST(Model, Lookups) {
  const Model m = load_model("llama-tiny", {2, 8}, Head::loss);
  EXPECT_EQ(m.extent("G"), (Extent{"G", 16, 8}));
  EXPECT_EQ(m.params[m.param_index("lm_head.weight")].name, "lm_head.weight");
  EXPECT_THROW(m.param_index("lm_head"), Error);
  EXPECT_THROW(m.extent("Q"), Error);
}

TEST(Model, InitialParameters) {
  const Model m = load_model("gpt2-tiny", {2, 8}, Head::loss);
  const HostTensors a = initial_parameters(m, 1), b = initial_parameters(m, 2);
  EXPECT_EQ(a.size(), m.params.size());
  EXPECT_EQ(a, initial_parameters(m, 1));
  EXPECT_NE(a, b);
  const HostTensors wide = initial_parameters(with_dtype(m, Dtype::f64), 1);
  double sum = 0, squares = 0;
  const HostTensor& table = wide.at("transformer.wte.weight");
  for (int64_t i = 0; i < table.elements(); ++i) {
    sum += table.at(i);
    squares += table.at(i) * table.at(i);
    EXPECT_EQ(static_cast<float>(table.at(i)), a.at("transformer.wte.weight").as<float>()[i]);
  }
  const auto n = static_cast<double>(table.elements());
  EXPECT_NEAR(sum / n, 0, 0.002);
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.001);
  EXPECT_EQ(a.at("transformer.ln_f.weight").at(3), 1);
  EXPECT_EQ(a.at("transformer.ln_f.bias").at(3), 0);
  EXPECT_NE(a.at("transformer.h.0.attn.q.weight").at(0),
            a.at("transformer.h.0.attn.k.weight").at(0));
}

TEST(Model, ChecksModelsMadeByHand) {
  const Model good = load_model("llama-tiny", {2, 8}, Head::loss);
  const auto refused = [&](auto change) {
    Model m = good;
    change(m);
    EXPECT_THROW(check_model(m), Error);
  };
  EXPECT_NO_THROW(check_model(good));
  refused([](Model& m) { m.name = ""; });
  refused([](Model& m) { m.dtype = Dtype::f64; });
  refused([](Model& m) { m.extents[1].size = 33; });
  refused([](Model& m) { m.params[0].file.tensor = ""; });
  refused([](Model& m) { m.params[0].init.deviation = -1; });
  refused([](Model& m) { m.uses[0].block = 9; });
  refused([](Model& m) { m.uses[0].params[0] = 999; });
  refused([](Model& m) { m.uses[0].inputs[0] = 999; });
  refused([](Model& m) { std::swap(m.uses[0], m.uses[1]); });
  refused([](Model& m) { m.uses.pop_back(); });
  refused([](Model& m) { m.loss = m.inputs[4]; });
  refused([](Model& m) { m.blocks[1].nodes[0].in[0] = 999; });
  refused([](Model& m) { m.blocks[1].nodes[0].phase = Phase::B; });
  refused([](Model& m) { m.blocks[1].nodes[0].attrs["eps"] = INFINITY; });
  refused([](Model& m) { std::swap(m.blocks[1].nodes[0], m.blocks[1].nodes[1]); });
  refused([](Model& m) { m.blocks[1].nodes.pop_back(); });
  refused([](Model& m) { m.blocks[1].outputs.clear(); });
  refused([](Model& m) { m.blocks[1].values[0].name = m.blocks[1].values[1].name; });
  refused([](Model& m) { m.blocks[1] = differentiate(m.blocks[1]); });
}

}  // namespace
}  // namespace plait
