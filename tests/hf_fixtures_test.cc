// Every model family against Hugging Face transformers (tests/fixtures/make_hf_fixtures.py): loss,
// logits, gradients and parameters after steps, on one rank and on four, in f64 and in f32; files
// read and written back.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "harness.h"
#include "plait/io/files.h"
#include "plait/io/safetensors.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-11;  // what is promised is 1e-9
constexpr int64_t kLogitStride = 11;  // every eleventh row of the logits is in the file
constexpr BatchShape kShape{8, 24};

std::string hf_folder() { return std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/hf"; }

const std::vector<std::string>& names() {
  static const std::vector<std::string> all = {"gemma",
                                               "gemma2",
                                               "gemma3",
                                               "gpt2",
                                               "gpt2_unscaled",
                                               "gpt2_variant",
                                               "llama_bias",
                                               "llama_dynamic",
                                               "llama_gelu",
                                               "llama_linear",
                                               "llama_llama3",
                                               "llama_longrope_long",
                                               "llama_longrope_short",
                                               "llama_mha",
                                               "llama_tied_mqa",
                                               "llama_yarn",
                                               "llama_yarn_mscale",
                                               "mistral",
                                               "olmo2",
                                               "olmo2_bias",
                                               "qwen2",
                                               "qwen2_full",
                                               "qwen3",
                                               "qwen3_bias",
                                               "smollm",
                                               "smollm3",
                                               "smollm3_listed"};
  return all;
}

struct Fixture {
  std::string folder;
  HostTensors expected;
  Model model;
  HostTensors parameters;
  Batch batch;
};

Fixture load(const std::string& name, Dtype dtype) {
  Fixture f;
  f.folder = hf_folder() + "/" + name;
  f.expected = SafetensorsFile(f.folder + "/expected.safetensors").read_all();
  f.model = with_dtype(load_model(f.folder, kShape, Head::loss), dtype);
  f.parameters = load_parameters(f.model, f.folder);
  HostTensors inputs = SafetensorsFile(hf_folder() + "/batch.safetensors").read_all();
  inputs["weights"] = convert(inputs["weights"], dtype);
  f.batch.microbatches.push_back(std::move(inputs));
  f.batch.step["hyper"] = HostTensor(dtype, {2});  // learning rate 0
  return f;
}

void set_hyper(Batch& batch, double rate, int step) {
  HostTensor hyper(Dtype::f64, {2});
  hyper.as<double>()[0] = rate;
  hyper.as<double>()[1] = step;
  HostTensor& to = batch.step["hyper"];
  to = convert(hyper, to.dtype);
}

// Heads are split where plait can: query heads with their key/value heads, or alone.
Plan with_heads(const std::string& mesh, const Model& model) {
  std::string text = "mesh = [" + mesh + "]\n[split]\nT = 'dp'\nF = 'tp'\nV = 'tp'\nH = 'tp'\n";
  int64_t kv_heads = 0;
  for (const Extent& e : model.extents)
    if (e.name == "G") kv_heads = e.units();
  if (kv_heads == 0 || kv_heads % 2 == 0) text += "G = 'tp'\n";
  if (mesh.find("pp") != std::string::npos) text += "[pipeline]\naxis = 'pp'\n";
  return parse_plan(text, "test");
}

std::vector<Plan> layouts(const Model& model) {
  return {one_rank_plan(1), with_heads("'pp=2', 'dp=1', 'tp=2'", model),
          with_heads("'dp=2', 'tp=2'", model)};
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

// What an error in a gradient is measured by: its norm, or that of its summed absolute terms
// where these cancel (a key bias without rotary positions has gradient zero).
std::map<std::string, double> scales(const Fixture& f) {
  std::map<std::string, double> all;
  const ReferenceStep reference = reference_step(f.model, f.parameters, f.batch);
  for (const Param& p : f.model.params) {
    const HostTensor& whole = f.expected.at("grad." + p.file.tensor);
    all[p.name] = std::max(norm(file_part(p, whole)), reference.absolute_norms.at(p.name));
  }
  return all;
}

class HuggingFace : public testing::TestWithParam<std::string> {};

TEST_P(HuggingFace, LossAndGradientsInF64) {
  const Fixture f = load(GetParam(), Dtype::f64);
  const auto scale = scales(f);
  for (const Plan& plan : layouts(f.model)) {
    SCOPED_TRACE(print_plan(plan));
    const Gradients r = run(f, plan);
    EXPECT_NEAR(r.loss, f.expected.at("loss").at(0), kTolerance * std::abs(r.loss));
    ASSERT_EQ(r.gradients.size(), f.model.params.size());
    for (const Param& p : f.model.params) {
      const HostTensor expected = file_part(p, f.expected.at("grad." + p.file.tensor));
      EXPECT_LE(distance(r.gradients.at(p.name), expected), kTolerance * scale.at(p.name))
          << p.name;
    }
  }
}

// Everything that transformers names as a parameter is one here.
TEST_P(HuggingFace, NoParameterIsLeftOut) {
  const Fixture f = load(GetParam(), Dtype::f64);
  std::set<std::string> tensors;
  for (const Param& p : f.model.params) tensors.insert("grad." + p.file.tensor);
  for (const auto& [name, t] : f.expected)
    EXPECT_TRUE(!name.starts_with("grad.") || tensors.contains(name)) << name;
}

TEST_P(HuggingFace, LogitsInF64) {
  const Fixture f = load(GetParam(), Dtype::f64);
  const Model model = with_dtype(load_model(f.folder, kShape, Head::logits), Dtype::f64);
  LowerOptions options;
  options.train = false;
  for (const Plan& plan : layouts(model)) {
    SCOPED_TRACE(print_plan(plan));
    Session session(lower(model, plan, options).programs, {});
    session.set_states("param/", f.parameters);
    session.step(f.batch);
    const HostTensor logits = session.gather("logits").at("");
    const HostTensor& expected = f.expected.at("logits");
    HostTensor rows(Dtype::f64, expected.dims);
    const int64_t width = expected.dims[1];
    for (int64_t r = 0; r < expected.dims[0]; ++r)
      std::copy_n(logits.as<double>() + r * kLogitStride * width, width,
                  rows.as<double>() + r * width);
    EXPECT_LE(distance(rows, expected), kTolerance * norm(expected));
  }
}

TEST_P(HuggingFace, ParametersAfterTwoSgdSteps) {
  Fixture f = load(GetParam(), Dtype::f64);
  if (!f.expected.contains("after." + f.model.params[0].file.tensor))
    GTEST_SKIP() << "the file has none: these models differ by a table only";
  for (const Plan& plan : layouts(f.model)) {
    Session session(lower(f.model, plan, harness_options()).programs, {});
    session.set_states("param/", f.parameters);
    for (int step = 1; step <= 2; ++step) {
      set_hyper(f.batch, 0.05, step);
      session.step(f.batch);
    }
    const HostTensors after = session.gather("param/");
    for (const Param& p : f.model.params) {
      const HostTensor expected = file_part(p, f.expected.at("after." + p.file.tensor));
      EXPECT_LE(distance(after.at(p.name), expected), kTolerance * norm(expected)) << p.name;
    }
  }
}

// Each tensor within 4x of transformers' own f32 error on it, or of the median of its errors: a
// single error can be small by luck.
TEST_P(HuggingFace, F32WithinFourTimesItsOwnError) {
  const auto scale = scales(load(GetParam(), Dtype::f64));
  const Fixture f = load(GetParam(), Dtype::f32);
  std::map<std::string, double> theirs;
  std::vector<double> sorted;
  for (const Param& p : f.model.params) {
    // A tensor that holds several parameters has one error: its share is at most all of it.
    theirs[p.name] = f.expected.at("f32.grad." + p.file.tensor).at(0) / scale.at(p.name);
    sorted.push_back(theirs[p.name]);
  }
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  ASSERT_GT(median, 0);
  const double loss = f.expected.at("loss").at(0);
  const double of_logits = f.expected.at("f32.logits").at(0) / norm(f.expected.at("logits")) /
                           std::sqrt(double{kLogitStride});
  for (const Plan& plan : layouts(f.model)) {
    SCOPED_TRACE(print_plan(plan));
    const Gradients r = run(f, plan);
    EXPECT_LE(std::abs(r.loss - loss),
              4 * std::max(f.expected.at("f32.loss").at(0), of_logits * std::abs(loss)));
    for (const Param& p : f.model.params) {
      const HostTensor expected = file_part(p, f.expected.at("grad." + p.file.tensor));
      const double error = distance(convert(r.gradients.at(p.name), Dtype::f64), expected);
      EXPECT_LE(error / scale.at(p.name), 4 * std::max(theirs.at(p.name), median)) << p.name;
    }
  }
}

// Through the ranks of every layout, and in files.
TEST_P(HuggingFace, WrittenBackItHasTheSameBytes) {
  const std::string folder = hf_folder() + "/" + GetParam();
  const Model model = load_model(folder, kShape, Head::loss);
  const HostTensors parameters = load_parameters(model, folder);
  for (const Plan& plan : layouts(model)) {
    Session session(lower(model, plan).programs, {});
    session.set_states("param/", parameters);
    EXPECT_EQ(session.gather("param/"), parameters);
  }
  const fs::path out =
      fs::temp_directory_path() / fmt::format("plait-hf-{}-{}", GetParam(), getpid());
  save_model(model, parameters, out.string());
  const SafetensorsFile before(folder + "/model.safetensors"), after(out / "model.safetensors");
  EXPECT_EQ(before.entries().size(), after.entries().size());
  for (const SafetensorsEntry& e : before.entries()) {
    ASSERT_NE(after.find(e.name), nullptr) << e.name;
    EXPECT_EQ(after.read(e.name), before.read(e.name)) << e.name;  // type, shape and bytes
  }
  EXPECT_EQ(print_model(load_model(out.string(), kShape, Head::loss)), print_model(model));
  fs::remove_all(out);
}

// Files before transformers 5 have rope_theta and rope_scaling, torch_dtype,
// sliding_window_pattern.
TEST_P(HuggingFace, AnOlderConfigJsonIsTheSameModel) {
  const std::string folder = hf_folder() + "/" + GetParam();
  const std::string now = read_text(folder + "/config.json", 1 << 20);
  const std::string older = read_text(folder + "/config_v4.json", 1 << 20);
  EXPECT_NE(now, older);
  EXPECT_EQ(print_model(build_model(older, kShape, Head::loss)),
            print_model(build_model(now, kShape, Head::loss)));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, HuggingFace, testing::ValuesIn(names()),
                         [](const auto& i) { return i.param; });

TEST(HuggingFaceFixtures, AllAreTested) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(hf_folder()))
    if (entry.is_directory()) found.push_back(entry.path().filename().string());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, names());
}

TEST(HuggingFaceFixtures, AdamWIsTorchs) {
  Fixture f = load("llama_tied_mqa", Dtype::f64);
  LowerOptions options;
  set_setting(options.optimizer, "eps", 1e-3);
  options.optimizer.max_norm = 0;
  for (const Plan& plan : layouts(f.model)) {
    Session session(lower(f.model, plan, options).programs, {});
    session.set_states("param/", f.parameters);
    for (int step = 1; step <= 3; ++step) {
      set_hyper(f.batch, 0.01, step);
      session.step(f.batch);
    }
    const HostTensors after = session.gather("param/");
    for (const Param& p : f.model.params) {
      const HostTensor expected = file_part(p, f.expected.at("adamw." + p.file.tensor));
      EXPECT_LE(distance(after.at(p.name), expected), kTolerance * norm(expected)) << p.name;
    }
  }
}

}  // namespace
}  // namespace plait
