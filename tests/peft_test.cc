// Adapters that the real peft wrote, and what torch computed with them
// (tests/fixtures/make_peft_fixture.py): read, run, trained, merged, written back.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "harness.h"
#include "plait/io/safetensors.h"
#include "plait/model/adapter.h"

namespace plait {
namespace {

constexpr int64_t kKeptLogits = 48;  // as in the script

std::string fixture(const std::string& name) {
  return std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/" + name;
}

struct Fixture {
  Model base, model;
  HostTensors parameters;  // of `model`
  HostTensors expected;
  Batch batch;
};

Fixture load(const std::string& name, Head head) {
  Fixture f;
  const LoraConfig config = load_adapter_config(fixture(name));
  const std::string base = fixture(config.base_model);
  f.base = with_dtype(load_model(base, {8, 24}, head), Dtype::f64);
  f.model = with_lora(f.base, config);
  f.parameters = load_parameters(f.base, base);
  for (auto& [tensor, value] : load_adapter(f.model, fixture(name)))
    f.parameters[tensor] = std::move(value);
  f.expected = SafetensorsFile(fixture(name) + "/expected.safetensors").read_all();
  HostTensors inputs = SafetensorsFile(base + "/expected.safetensors").read_all();
  std::erase_if(inputs, [](const auto& t) {
    return t.first != "tokens" && t.first != "labels" && t.first != "positions" &&
           t.first != "sequences" && t.first != "weights";
  });
  f.batch.microbatches = {inputs};
  f.batch.step["hyper"] = HostTensor(Dtype::f64, {2});
  return f;
}

HostTensor logits(const Model& model, const HostTensors& parameters, const Batch& batch) {
  LowerOptions forward;
  forward.train = false;
  const Plan plan = parse_plan("mesh = ['dp=2', 'tp=2']\n[split]\nT = 'dp'\nF = 'tp'\n", "test");
  Session session(lower(model, plan, forward).programs, {});
  session.set_states("param/", parameters);
  session.step(batch);
  const HostTensor all = session.gather("logits").at("");
  HostTensor kept(Dtype::f64, {kKeptLogits, all.dims[1]});
  std::copy_n(all.as<double>(), kept.elements(), kept.as<double>());
  return kept;
}

// The rows of a file tensor that are a parameter.
HostTensor rows_of(const Param& p, const HostTensor& whole) {
  std::vector<int64_t> dims = {p.rows()};
  for (size_t i = 1; i < p.type.dims.size(); ++i) dims.push_back(p.type.dims[i].size);
  HostTensor part(Dtype::f64, dims);
  const int64_t width = part.elements() / dims[0];
  std::copy_n(whole.as<double>() + p.file.row * width, part.elements(), part.as<double>());
  return part;
}

class Peft : public testing::TestWithParam<const char*> {};

TEST_P(Peft, LogitsOfAdaptersAndOfMergedWeights) {
  const Fixture f = load(GetParam(), Head::logits);
  const HostTensor& expected = f.expected.at("logits");
  EXPECT_LE(distance(logits(f.model, f.parameters, f.batch), expected), 1e-11 * norm(expected));
  const HostTensors merged = merge_lora(f.model, f.parameters);
  EXPECT_LE(distance(logits(f.base, merged, f.batch), f.expected.at("merged_logits")),
            1e-11 * norm(expected));
}

TEST_P(Peft, LossAndGradientsUnderLayouts) {
  const Fixture f = load(GetParam(), Head::loss);
  for (const char* text :
       {"",
        "mesh = ['tp=2', 'dp=2']\nrecompute = 'full'\n[split]\nT = 'dp'\nF = 'tp'\nH = 'tp'\n"
        "G = 'tp'\nV = 'tp'\n",
        "mesh = ['pp=2', 'tp=2']\nrecompute = 'selective'\n[split]\nD = 'tp'\n[pipeline]\n"
        "axis = 'pp'\n"}) {
    Session session(lower(f.model, parse_plan(text, "test"), harness_options()).programs, {});
    session.set_states("param/", f.parameters);
    session.step(f.batch);
    EXPECT_NEAR(session.scalar("loss"), f.expected.at("loss").at(0), 1e-11);
    const HostTensors gradients = session.gather("grad/");
    size_t trained = 0;
    for (const Param& p : f.model.params) {
      if (p.frozen) continue;
      ++trained;
      const std::string file = p.file.tensor.starts_with(kPeftPrefix)
                                   ? p.file.tensor
                                   : std::string(kPeftPrefix) + p.file.tensor;
      const HostTensor expected = rows_of(p, f.expected.at("grad." + file));
      EXPECT_LE(distance(gradients.at(p.name), expected), 1e-10 * std::max(norm(expected), 1e-3))
          << p.name;
    }
    EXPECT_EQ(gradients.size(), trained);
  }
}

// PLAIT_PEFT_OUT=FOLDER keeps what is written, for make_peft_fixture.py --check.
TEST_P(Peft, WrittenBackItIsTheSame) {
  const Fixture f = load(GetParam(), Head::loss);
  const char* out = std::getenv("PLAIT_PEFT_OUT");
  const std::string folder =
      (out != nullptr ? std::string(out) : testing::TempDir()) + "/" + GetParam();
  save_adapter(f.model, f.parameters, folder);
  const SafetensorsFile ours(folder + "/adapter_model.safetensors"),
      theirs(fixture(GetParam()) + "/adapter_model.safetensors");
  EXPECT_EQ(ours.read_all(), theirs.read_all());
  const LoraConfig read = load_adapter_config(folder),
                   written = load_adapter_config(fixture(GetParam()));
  EXPECT_EQ(read.rank, written.rank);
  EXPECT_EQ(read.alpha, written.alpha);
  EXPECT_EQ(read.rslora, written.rslora);
  EXPECT_EQ(read.targets, written.targets);
  EXPECT_EQ(read.modules_to_save, written.modules_to_save);
  EXPECT_EQ(read.base_model, written.base_model);
  if (out == nullptr) std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Peft, testing::Values("peft_llama", "peft_gpt2"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace plait
