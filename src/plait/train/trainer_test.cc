#include "plait/train/trainer.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plait/io/files.h"
#include "plait/model/families.h"
#include "plait/tokens/tokenizer.h"

namespace plait {
namespace {

constexpr BatchShape kShape{2, 16};

std::string text() {
  std::string s;
  while (s.size() < 4000) s += "abcabd ";
  for (char& c : s) c = static_cast<char>(c == ' ' ? 0 : c - 'a' + 1);
  return s;
}

std::unique_ptr<Data> open_text() {
  const std::string path = path_beside(testing::TempDir() + "trainer-text");
  write_text(path, text());
  DataConfig c;
  c.train = {{path, "text"}};
  c.slot_tokens = kShape.slot_tokens;
  c.vocabulary = 67;
  c.cache = false;
  auto data = Data::open(c, *byte_tokenizer());
  std::filesystem::remove(path);
  return data;
}

TrainConfig config(int64_t steps) {
  TrainConfig c;
  c.steps = steps;
  c.learning_rate = 1e-2;
  c.warmup_steps = 3;
  c.eval_batches = 2;
  return c;
}

std::vector<double> losses(const Plan& plan, Dtype dtype, int64_t steps) {
  const Model model = with_dtype(load_model("llama-tiny", kShape, Head::loss), dtype);
  const auto data = open_text();
  Trainer trainer(model, plan, *data, config(steps));
  trainer.set_parameters(initial_parameters(model, 1));
  std::vector<double> result;
  trainer.run([&](const StepReport& r) { result.push_back(r.loss); });
  result.push_back(trainer.validation_loss());
  return result;
}

TEST(Trainer, LearningRateWarmsUpAndFalls) {
  TrainConfig c;
  c.steps = 100;
  c.warmup_steps = 10;
  c.learning_rate = 2;
  c.min_ratio = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(rate_of(c), 1), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(rate_of(c), 10), 2);
  EXPECT_NEAR(learning_rate(rate_of(c), 55), 1.1, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(rate_of(c), 100), 0.2);
}

TEST(Trainer, LearnsAndFollowsOneRankUnderAPlan) {
  const std::vector<double> one = losses(one_rank_plan(2), Dtype::f64, 30);
  EXPECT_GT(one.front(), 4);
  EXPECT_LT(one.back(), 1);
  const Plan plan = parse_plan(
      "mesh = [\"pp=2\", \"dp=2\", \"tp=2\"]\nmicrobatches = 2\n[pipeline]\naxis = \"pp\"\n"
      "[split]\nT = \"dp\"\nH = \"tp\"\nG = \"tp\"\nF = \"tp\"\nV = \"tp\"\n",
      "test");
  const std::vector<double> eight = losses(plan, Dtype::f64, 30);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(eight[i], one[i], 1e-9) << i;
}

TEST(Trainer, RefusesInfiniteLossAndBadConfig) {
  const Model model = load_model("llama-tiny", kShape, Head::loss);
  const auto data = open_text();
  TrainConfig c = config(5);
  c.learning_rate = -1;
  EXPECT_THROW(Trainer(model, one_rank_plan(1), *data, c), Error);
  Trainer trainer(model, one_rank_plan(1), *data, config(5));
  HostTensors parameters = initial_parameters(model, 1);
  parameters.at("model.norm.weight").as<float>()[3] = NAN;
  trainer.set_parameters(parameters);
  try {
    trainer.run({});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("step 1: the loss is nan"));
  }
}

TEST(Trainer, WritesOneLineOfMetricsPerStep) {
  const std::string path = path_beside(testing::TempDir() + "metrics");
  {
    const Model model = load_model("llama-tiny", kShape, Head::loss);
    const auto data = open_text();
    TrainConfig c = config(4);
    c.metrics = path;
    c.eval_every = 3;
    Trainer trainer(model, one_rank_plan(2), *data, c);
    trainer.set_parameters(initial_parameters(model, 1));
    trainer.run({});
  }
  std::istringstream lines(read_text(path, 1 << 20));
  std::filesystem::remove(path);
  std::vector<bool> validated;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    validated.push_back(json.contains("validation_loss"));
    EXPECT_EQ(json.at("step"), validated.size());
    EXPECT_EQ(json.at("tokens"), 64);
  }
  EXPECT_EQ(validated, (std::vector<bool>{false, false, true, true}));
}

}  // namespace
}  // namespace plait
