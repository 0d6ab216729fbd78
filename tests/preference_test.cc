// Preference losses (DPO and its kin): against PyTorch
// (tests/fixtures/make_preference_fixtures.py), on one rank and under layouts, in one micro-batch
// and in two.
#include "plait/model/preference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "harness.h"
#include "plait/io/safetensors.h"

namespace plait {
namespace {

constexpr int64_t kSlots = 4, kSlotTokens = 24, kPairs = 6;
const std::string kFixtures = std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/";

const HostTensors& expected() {
  static const HostTensors all = SafetensorsFile(kFixtures + "preference.safetensors").read_all();
  return all;
}

Model load(Head head, int64_t slots) {
  return with_dtype(load_model(kFixtures + "llama_tiny", {slots, kSlotTokens}, head), Dtype::f64);
}

// Elements [begin, begin + count) of a [T] tensor.
HostTensor part(const HostTensor& whole, int64_t begin, int64_t count) {
  HostTensor out(whole.dtype, {count});
  const size_t size = static_cast<size_t>(info(whole.dtype).bytes);
  std::memcpy(out.as<char>(), whole.as<char>() + static_cast<size_t>(begin) * size,
              static_cast<size_t>(count) * size);
  return out;
}

Batch make_batch(int64_t microbatches) {
  Batch batch;
  const int64_t tokens = kSlots * kSlotTokens / microbatches;
  for (int64_t m = 0; m < microbatches; ++m) {
    HostTensors inputs;
    for (const char* name :
         {"tokens", "labels", "positions", "sequences", "weights", "pairs", "reference"})
      inputs[name] = part(expected().at(name), m * tokens, tokens);
    inputs["pair_weight"] = HostTensor(Dtype::f64, {});
    *inputs["pair_weight"].as<double>() = 1.0 / kPairs;
    batch.microbatches.push_back(std::move(inputs));
  }
  batch.step["hyper"] = HostTensor(Dtype::f64, {2});  // learning rate 0
  return batch;
}

Plan layout(int64_t microbatches) {
  return parse_plan(fmt::format("mesh = ['pp=2', 'dp=2', 'tp=2']\nmicrobatches = {}\n[split]\n"
                                "T = 'dp'\nF = 'tp'\nV = 'tp'\nH = 'tp'\nG = 'tp'\n"
                                "[pipeline]\naxis = 'pp'\n",
                                microbatches),
                    "test");
}

struct Form {
  const char* name;
  PreferenceOptions options;
};
const Form kForms[] = {{"sigmoid", {"sigmoid", 0.3, 0}},
                       {"smoothed", {"sigmoid", 0.7, 0.1}},
                       {"hinge", {"hinge", 0.2, 0}},
                       {"ipo", {"ipo", 0.4, 0}}};

TEST(Preference, LossMetricsAndGradientsAsPyTorch) {
  for (const Form& form : kForms)
    for (const int64_t microbatches : {1, 2})
      for (const Plan& plan : {one_rank_plan(microbatches), layout(microbatches)}) {
        SCOPED_TRACE(fmt::format("{}, {} micro-batches, {} ranks", form.name, microbatches,
                                 plan.mesh.ranks()));
        const Model model =
            with_preference(load(Head::preference, kSlots / microbatches), form.options);
        Session session(lower(model, plan, harness_options()).programs, {});
        session.set_states("param/", load_parameters(model, kFixtures + "llama_tiny"));
        session.step(make_batch(microbatches));
        const auto wanted = [&](const std::string& what) {
          return expected().at(std::string(form.name) + "." + what);
        };
        EXPECT_NEAR(session.scalar("loss"), wanted("loss").at(0), 1e-11);
        EXPECT_NEAR(session.scalar("preference_margin"), wanted("margin").at(0), 1e-10);
        EXPECT_EQ(session.scalar("preference_right"), wanted("right").at(0));
        const HostTensors gradients = session.gather("grad/");
        int compared = 0;
        for (const Param& p : model.params) {
          const std::string name = fmt::format("{}.grad.{}", form.name, p.file.tensor);
          if (!expected().contains(name)) continue;
          ++compared;
          EXPECT_LE(distance(gradients.at(p.name), expected().at(name)),
                    1e-10 * norm(expected().at(name)))
              << p.name;
        }
        EXPECT_EQ(compared, std::string(form.name) == "smoothed" ? 3 : 1);
      }
}

// Where the reference comes from: a forward-only program over the frozen parameters.
TEST(Preference, TokenLossIsPyTorchsTokenLoss) {
  const Model model = load(Head::token_loss, kSlots);
  LowerOptions options;
  options.train = false;
  Session session(lower(model, layout(1), options).programs, {});
  session.set_states("param/", load_parameters(model, kFixtures + "llama_tiny"));
  session.step(make_batch(1));
  const HostTensor nll = session.gather("token_loss").begin()->second;
  for (int64_t t = 0; t < kSlots * kSlotTokens; ++t)
    EXPECT_NEAR(nll.at(t), expected().at("nll").at(t), 1e-11);
}

// Against itself a model has margins of 0, so the loss is log 2, and its slope -beta / 2 for each.
TEST(Preference, ByHandAgainstItself) {
  const Model model = load(Head::preference, kSlots);
  Batch batch = make_batch(1);
  batch.microbatches[0]["reference"] = expected().at("nll");
  Session session(lower(model, one_rank_plan(1), harness_options()).programs, {});
  session.set_states("param/", load_parameters(model, kFixtures + "llama_tiny"));
  session.step(batch);
  EXPECT_NEAR(session.scalar("loss"), std::log(2.0), 1e-12);
  EXPECT_NEAR(session.scalar("preference_margin"), 0, 1e-10);
}

TEST(Preference, PairsThatAreNoneAreErrors) {
  const Model model = load(Head::preference, kSlots);
  const auto error = [&](int64_t t, int32_t id) -> std::string {
    Batch batch = make_batch(1);
    batch.microbatches[0]["pairs"].as<int32_t>()[t] = id;
    Session session(lower(model, one_rank_plan(1), harness_options()).programs, {});
    session.set_states("param/", load_parameters(model, kFixtures + "llama_tiny"));
    try {
      session.step(batch);
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_THAT(error(0, 2), testing::HasSubstr("pairs[0] is 2: a rejected text without its chosen"));
  EXPECT_THAT(error(0, -1), testing::HasSubstr("pairs[0] is -1"));
  EXPECT_THAT(error(kSlotTokens - 1, 3),
              testing::HasSubstr("pairs[23] is 3: a chosen text without its rejected"));
}

TEST(Preference, FormsAreCheckedAndKept) {
  const Model model = load(Head::preference, 1);
  EXPECT_EQ(preference_of(model), PreferenceOptions{});
  for (const Form& form : kForms)
    EXPECT_EQ(preference_of(with_preference(model, form.options)), form.options);
  const auto refused = [&](const PreferenceOptions& o) {
    EXPECT_THROW(with_preference(model, o), Error) << o.variant;
  };
  refused({"kto", 0.1, 0});
  refused({"sigmoid", 0, 0});
  refused({"sigmoid", NAN, 0});
  refused({"sigmoid", 0.1, 0.5});
  refused({"ipo", 0.1, 0.1});
  EXPECT_THROW(preference_of(load(Head::loss, 1)), Error);
  // As text the model is the same.
  const std::string text = print_model(with_preference(model, kForms[1].options));
  EXPECT_EQ(print_model(parse_model(text, "test")), text);
}

}  // namespace
}  // namespace plait
