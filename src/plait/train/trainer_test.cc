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
  c.rate.peak = 1e-2;
  c.rate.warmup_steps = 3;
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
  c.rate.peak = -1;
  EXPECT_THROW(Trainer(model, one_rank_plan(1), *data, c), Error);
  Trainer trainer(model, one_rank_plan(1), *data, config(5));
  HostTensors parameters = initial_parameters(model, 1);
  parameters.at("model.norm.weight").as<float>()[3] = NAN;
  trainer.set_parameters(parameters);
  try {
    trainer.run({});
    FAIL() << "no error";
  } catch (const Error& e) {
    // The first bad tensor, where it is, and that nothing has changed.
    EXPECT_THAT(e.what(), testing::HasSubstr("step 1: the loss is nan"));
    EXPECT_THAT(e.what(), testing::HasSubstr("param/model.norm.weight"));
    EXPECT_THAT(e.what(), testing::HasSubstr("Nothing was changed"));
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

constexpr const char* kEightRanks =
    "mesh = [\"pp=2\", \"dp=2\", \"tp=2\"]\nmicrobatches = 2\n[pipeline]\naxis = \"pp\"\n"
    "[split]\nT = \"dp\"\nH = \"tp\"\nG = \"tp\"\nF = \"tp\"\nV = \"tp\"\n";

class Resume : public testing::Test {
 protected:
  Resume() : folder_(path_beside(testing::TempDir() + "resume")), data_(open_text()) {
    std::filesystem::create_directories(folder_);
  }
  ~Resume() override { std::filesystem::remove_all(folder_); }

  TrainConfig saving(int64_t steps) const {
    TrainConfig c = config(20);
    c.checkpoints = folder_ + "/checkpoints";
    c.checkpoint_every = 5;
    c.eval_every = 4;
    c.noise_every = 3;
    c.steps = steps;
    return c;
  }
  std::unique_ptr<Trainer> trainer(const Plan& plan, const TrainConfig& c, int64_t slots = 2,
                                   Dtype dtype = Dtype::f32) const {
    const BatchShape shape{slots, kShape.slot_tokens};
    const Model model = with_dtype(load_model("llama-tiny", shape, Head::loss), dtype);
    auto t = std::make_unique<Trainer>(model, plan, *data_, c);
    t->set_parameters(initial_parameters(model, 1));
    return t;
  }
  static std::vector<std::string> rows(Trainer& t) {
    std::vector<std::string> result;
    t.run([&](const StepReport& r) {
      result.push_back(fmt::format("{} {:a} {:a} {} {} {}", r.step, r.loss, r.gradient_norm,
                                   r.validation_loss.value_or(0), r.noise_scale.value_or(0),
                                   r.epochs.at(0)));
    });
    return result;
  }

  std::string folder_;
  std::unique_ptr<Data> data_;
};

TEST_F(Resume, OnTheSameLayoutBitForBit) {
  for (const Plan& plan : {one_rank_plan(2), parse_plan(kEightRanks, "test")}) {
    TrainConfig plain = saving(20);
    plain.checkpoints.clear();
    plain.checkpoint_every = 0;
    auto whole = trainer(plan, plain);
    const std::vector<std::string> expected = rows(*whole);
    {
      TrainConfig half = saving(20);
      auto first = trainer(plan, half);
      std::atomic<bool> stop = false;
      EXPECT_EQ(first->run([&](const StepReport& r) { stop = r.step == 12; }, &stop),
                Ending::stopped);
    }
    auto second = trainer(plan, saving(20));
    const auto last = second->store()->load_latest();
    ASSERT_TRUE(last);
    EXPECT_EQ(last->step, 12);
    second->resume(*last);
    const std::vector<std::string> found = rows(*second);
    EXPECT_EQ(found, std::vector<std::string>(expected.begin() + 12, expected.end()));
    EXPECT_EQ(second->parameters(), whole->parameters());
    second.reset();
    std::filesystem::remove_all(folder_ + "/checkpoints");
  }
}

TEST_F(Resume, OnAnotherLayoutWithTheSameSamples) {
  auto whole = trainer(
      one_rank_plan(2),
      [&] {
        TrainConfig c = saving(20);
        c.checkpoints.clear();
        c.checkpoint_every = 0;
        return c;
      }(),
      2, Dtype::f64);
  whole->run({});
  {
    TrainConfig c = saving(10);
    c.rate.steps = c.steps = 20;
    auto first = trainer(parse_plan(kEightRanks, "test"), c, 2, Dtype::f64);
    while (first->done() < 10) first->step();
    first->save_checkpoint();
  }
  // One micro-batch of four slots in the place of two of two.
  auto second = trainer(one_rank_plan(1), saving(20), 4, Dtype::f64);
  second->resume(*second->store()->load_latest());
  second->run({});
  const HostTensors a = whole->parameters(), b = second->parameters();
  for (const auto& [name, t] : a)
    for (int64_t i = 0; i < t.elements(); ++i) ASSERT_NEAR(t.at(i), b.at(name).at(i), 1e-9) << name;
}

TEST_F(Resume, RefusesAnotherRun) {
  {
    auto first = trainer(one_rank_plan(2), saving(20));
    first->step();
    first->save_checkpoint();
  }
  auto other = trainer(one_rank_plan(3), saving(20));
  const auto last = other->store()->load_latest();
  try {
    other->resume(*last);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("'samples_of_a_step' was 4, here it is 6"));
  }
}

TEST_F(Resume, EndsEarlyWithoutABetterValidation) {
  TrainConfig c = config(200);
  c.eval_every = 2;
  c.patience = 3;
  c.least_gain = 100;  // nothing is better by that much
  auto t = trainer(one_rank_plan(1), c);
  EXPECT_EQ(t->run({}), Ending::early);
  EXPECT_EQ(t->done(), 8);
}

}  // namespace
}  // namespace plait
