// The head that gives every token's loss by itself: minus the logarithm of its label's probability,
// the same in every layout.
#include <gtest/gtest.h>

#include <cmath>

#include "harness.h"

namespace plait {
namespace {

HostTensor run(Head head, const Plan& plan, const char* state) {
  const Model model = with_dtype(load_model("llama-tiny", {4, 12}, head), Dtype::f64);
  LowerOptions options;
  options.train = false;
  Session session(lower(model, plan, options).programs, {});
  session.set_states("param/", random_parameters(model, 3));
  const Model train = with_dtype(load_model("llama-tiny", {4, 12}, Head::loss), Dtype::f64);
  session.step(random_batch(train, 1, 3));
  return session.gather(state).begin()->second;
}

TEST(TokenLoss, IsMinusTheLogProbabilityOfTheLabel) {
  const Plan layout = parse_plan(R"(
mesh = ["pp=2", "dp=2", "tp=2"]
[split]
T = "dp"
H = "tp"
G = "tp"
F = "tp"
V = "tp"
[pipeline]
axis = "pp"
)",
                                 "test");
  const HostTensor logits = run(Head::logits, one_rank_plan(1), "logits");
  const HostTensor one = run(Head::token_loss, one_rank_plan(1), "token_loss");
  const HostTensor many = run(Head::token_loss, layout, "token_loss");
  const Model train = with_dtype(load_model("llama-tiny", {4, 12}, Head::loss), Dtype::f64);
  const Batch batch = random_batch(train, 1, 3);
  const int32_t* labels = batch.microbatches[0].at("labels").as<int32_t>();
  ASSERT_EQ(one.dims, (std::vector<int64_t>{48}));
  for (int64_t t = 0; t < 48; ++t) {
    double sum = 0;
    for (int64_t v = 0; v < 67; ++v) sum += std::exp(logits.at(t * 67 + v));
    EXPECT_NEAR(one.at(t), std::log(sum) - logits.at(t * 67 + labels[t]), 1e-12);
    EXPECT_NEAR(many.at(t), one.at(t), 1e-12);
  }
}

TEST(TokenLoss, IsHandedOutForOneMicrobatch) {
  const Model model = load_model("llama-tiny", {4, 12}, Head::token_loss);
  LowerOptions options;
  options.train = false;
  try {
    lower(model, one_rank_plan(2), options);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("token_loss for every token; needs microbatches = 1"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace plait
