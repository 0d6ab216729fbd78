#include "plait/train/text_data.h"

#include <gmock/gmock.h>

#include "plait/io/files.h"
#include "plait/model/families.h"

namespace plait {
namespace {

std::string text(int64_t bytes) {
  std::string s;
  for (int64_t i = 0; i < bytes; ++i) s += static_cast<char>('!' + i % 29);
  return s;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(TextData, HoldsOutTheEnd) {
  const TextData large(text(1000), 256, 10, "t");
  EXPECT_EQ(large.validation().size(), 50u);
  EXPECT_EQ(large.training().size(), 950u);
  const TextData small(text(30), 256, 10, "t");
  EXPECT_EQ(small.validation().size(), 11u);
  EXPECT_EQ(small.validation_samples(), 1);
}

TEST(TextData, RefusesWhatCannotWork) {
  EXPECT_THAT(error_of([] { load_text_data("/nowhere/t.txt", 256, 8); }),
              testing::HasSubstr("'/nowhere/t.txt' does not exist"));
  EXPECT_THAT(error_of([] { TextData("", 256, 8, "t"); }), testing::HasSubstr("is empty"));
  EXPECT_THAT(error_of([] { TextData(text(17), 256, 8, "t"); }),
              testing::HasSubstr("has 17 bytes; needs 18"));
  EXPECT_THAT(error_of([] { TextData(text(30), 40, 8, "t"); }),
              testing::HasSubstr("byte 40 at offset 7 is outside the model's vocabulary of 40"));
}

TEST(TextData, SamplesDependOnSeedStepAndSampleAlone) {
  const TextData data(text(5000), 256, 16, "t");
  const Batch a = data.training_batch({1, 6, 16, Dtype::f32}, 7, 3);
  const Batch b = data.training_batch({3, 2, 16, Dtype::f32}, 7, 3);
  for (int64_t sample = 0; sample < 6; ++sample)
    for (int64_t i = 0; i < 16; ++i) {
      const auto& left = a.microbatches[0].at("tokens");
      const auto& right = b.microbatches[static_cast<size_t>(sample / 2)].at("tokens");
      EXPECT_EQ(left.at(sample * 16 + i), right.at(sample % 2 * 16 + i));
    }
  EXPECT_NE(data.sample_start(7, 3, 0, 6), data.sample_start(8, 3, 0, 6));
  for (int64_t i = 0; i < 2000; ++i) {
    const int64_t start = data.sample_start(1, i, 0, 1);
    EXPECT_GE(start, 0);
    EXPECT_LE(start + 17, static_cast<int64_t>(data.training().size()));
  }
}

TEST(TextData, ValidationCoversEveryLabelOnce) {
  const TextData data(text(2000), 256, 8, "t");  // 100 held out: 12 samples
  const BatchLayout layout{2, 5, 8, Dtype::f64};
  ASSERT_EQ(data.validation_batches(layout), 2);
  std::string seen;
  for (int64_t i = 0; i < 2; ++i) {
    int64_t labelled = 0;
    double weight = 0;
    const Batch batch = data.validation_batch(layout, i, labelled);
    EXPECT_EQ(labelled, i == 0 ? 80 : 16);
    for (const HostTensors& m : batch.microbatches)
      for (int64_t t = 0; t < 40; ++t) {
        weight += m.at("weights").at(t);
        if (m.at("weights").at(t) > 0) seen += static_cast<char>(m.at("labels").at(t));
      }
    EXPECT_NEAR(weight, 1, 1e-12);
  }
  EXPECT_EQ(data.validation_labels(layout, 2), 96);
  EXPECT_EQ(data.validation_labels(layout, 1), 80);
  EXPECT_EQ(seen, data.validation().substr(1, 96));
}

TEST(CheckBatch, AcceptsOursAndNamesFaults) {
  const Model model = load_model("llama-tiny", {3, 8}, Head::loss);
  const TextData data(text(500), 67, 8, "t");
  const BatchLayout layout = batch_layout(model, 2);
  const Batch good = data.training_batch(layout, 1, 0);
  check_batch(good, model);
  auto broken = [&](const std::function<void(HostTensors&)>& change) {
    Batch batch = good;
    change(batch.microbatches[1]);
    return error_of([&] { check_batch(batch, model); });
  };
  EXPECT_THAT(broken([](HostTensors& m) { m.at("tokens").as<int32_t>()[5] = 67; }),
              testing::HasSubstr("micro-batch 1: tokens[5] is 67; needs 0 to 66"));
  EXPECT_THAT(broken([](HostTensors& m) {
                for (int i = 8; i < 16; ++i) m.at("sequences").as<int32_t>()[i] = 0;
              }),
              testing::HasSubstr("sequence 0 crosses the border of two slots of 8 tokens"));
  EXPECT_THAT(broken([](HostTensors& m) { m.at("sequences").as<int32_t>()[3] = 9; }),
              testing::HasSubstr("sequence 0 goes on at token 4 after it ended"));
  EXPECT_THAT(broken([](HostTensors& m) { m.at("weights").as<float>()[2] = NAN; }),
              testing::HasSubstr("weights[2] is nan"));
  EXPECT_THAT(broken([](HostTensors& m) { m.erase("labels"); }),
              testing::HasSubstr("has no 'labels'"));
}

}  // namespace
}  // namespace plait
