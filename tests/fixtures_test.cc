// Loss, logits and gradients against PyTorch (tests/fixtures/make_fixtures.py), on one rank and
// under a layout, in f64 and in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness.h"
#include "plait/io/safetensors.h"

namespace plait {
namespace {

struct Fixture {
  std::string folder;
  HostTensors expected;
  Model model;
  HostTensors parameters;
  Batch batch;
};

Fixture load(const std::string& name, Dtype dtype) {
  Fixture f;
  f.folder = std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/" + name;
  f.expected = SafetensorsFile(f.folder + "/expected.safetensors").read_all();
  f.model = with_dtype(load_model(f.folder, {8, 24}, Head::loss), dtype);
  f.parameters = load_parameters(f.model, f.folder);
  HostTensors inputs;
  for (const char* key : {"tokens", "labels", "positions", "sequences"})
    inputs[key] = f.expected.at(key);
  inputs["weights"] = convert(f.expected.at("weights"), dtype);
  f.batch.microbatches.push_back(inputs);
  f.batch.step["hyper"] = HostTensor(dtype, {2});  // learning rate 0
  return f;
}

struct Gradients {
  double loss;
  HostTensors gradients;
};

Gradients run(const Fixture& f, const Plan& plan) {
  Session session(lower(f.model, plan, harness_options()).programs, {});
  session.set_states("param/", f.parameters);
  session.step(f.batch);
  return {session.scalar("loss"), session.gather("grad/")};
}

Plan layout() {
  return parse_plan("mesh = ['pp=2', 'dp=2']\n[split]\nT = 'dp'\n[pipeline]\naxis = 'pp'\n",
                    "test");
}

Plan tensor_layout() {
  return parse_plan("mesh = ['dp=2', 'tp=4']\n[split]\nT = 'dp'\nF = 'tp'\nV = 'tp'\nD = 'tp'\n",
                    "test");
}

// All three axes, heads split where there are key/value heads for two ranks.
Plan heads_layout(const Model& model) {
  std::string text = "mesh = ['pp=2', 'dp=2', 'tp=2']\n[split]\nT = 'dp'\nF = 'tp'\nV = 'tp'\n";
  bool one_kv_head = false;
  for (const Extent& e : model.extents)
    one_kv_head = one_kv_head || (e.name == "G" && e.units() == 1);
  if (!one_kv_head) text += "H = 'tp'\nG = 'tp'\n";
  return parse_plan(text + "[pipeline]\naxis = 'pp'\n", "test");
}

class PyTorch : public testing::TestWithParam<const char*> {};

TEST_P(PyTorch, LossAndGradientsInF64) {
  const Fixture f = load(GetParam(), Dtype::f64);
  for (const Plan& plan : {one_rank_plan(1), layout(), tensor_layout(), heads_layout(f.model)}) {
    const Gradients r = run(f, plan);
    EXPECT_NEAR(r.loss, f.expected.at("loss").at(0), 1e-11 * std::abs(r.loss));
    ASSERT_EQ(r.gradients.size(), f.model.params.size());
    for (const Param& p : f.model.params) {
      const HostTensor expected = file_part(p, f.expected.at("grad." + p.file.tensor));
      // A key bias shifts all scores of a row alike: its gradient is zero but for rounding.
      const double scale = std::max(norm(expected), 1e-3);
      EXPECT_LE(distance(r.gradients.at(p.name), expected) / scale, 1e-10) << p.name;
    }
  }
}

// Each tensor within 4x of PyTorch's own f32 error on it, or of the median of PyTorch's errors.
TEST_P(PyTorch, F32WithinFourTimesPyTorchsOwnError) {
  const Fixture f = load(GetParam(), Dtype::f32);
  std::map<std::string, double> theirs;
  std::vector<double> sorted;
  auto error = [&](const Param& p, const HostTensor& found) {
    const HostTensor expected = file_part(p, f.expected.at("grad." + p.file.tensor));
    return distance(found, expected) / std::max(norm(expected), 1e-3);
  };
  for (const Param& p : f.model.params) {
    theirs[p.name] = error(p, file_part(p, f.expected.at("f32.grad." + p.file.tensor)));
    sorted.push_back(theirs[p.name]);
  }
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  ASSERT_GT(median, 0);
  for (const Plan& plan : {one_rank_plan(1), layout(), heads_layout(f.model)}) {
    const Gradients r = run(f, plan);
    const double loss = f.expected.at("loss").at(0);
    EXPECT_LE(std::abs(r.loss - loss),
              4 * std::max(std::abs(f.expected.at("f32.loss").at(0) - loss), 1e-6));
    for (const Param& p : f.model.params)
      EXPECT_LE(error(p, convert(r.gradients.at(p.name), Dtype::f64)),
                4 * std::max(theirs[p.name], median))
          << p.name;
  }
}

TEST_P(PyTorch, LogitsInF64) {
  const Fixture f = load(GetParam(), Dtype::f64);
  const Model model = with_dtype(load_model(f.folder, {8, 24}, Head::logits), Dtype::f64);
  LowerOptions options;
  options.train = false;
  Session session(lower(model, layout(), options).programs, {});
  session.set_states("param/", f.parameters);
  session.step(f.batch);
  const HostTensor logits = session.gather("logits").at("");
  const HostTensor& expected = f.expected.at("logits");
  EXPECT_LE(distance(logits, expected), 1e-11 * norm(expected));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PyTorch,
                         testing::Values("llama_tiny", "llama_tiny_tied", "gpt2_tiny"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace plait
