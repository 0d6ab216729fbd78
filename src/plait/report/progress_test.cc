#include "plait/report/progress.h"

#include <gmock/gmock.h>

#include "plait/report/table.h"

namespace plait {
namespace {

StepReport report(int64_t step) {
  StepReport r;
  r.step = step;
  r.steps = 1000;
  r.loss = 2.5;
  r.learning_rate = 2e-3;
  r.gradient_norm = 0.5;
  r.tokens_per_second = 123456;
  r.seconds = 0.1;
  return r;
}

TEST(Progress, Words) {
  EXPECT_EQ(duration_text(65.2), "1:05");
  EXPECT_EQ(duration_text(7380), "2:03:00");
  EXPECT_EQ(progress_bar(1, 4, 8), "[##......]");
  EXPECT_EQ(progress_bar(4, 4, 8), "[########]");
  const std::string line = progress_line(report(7), 61);
  EXPECT_EQ(line,
            "step    7/1000  loss 2.500  rate 2.0e-03  norm 0.50  123 456 tokens/s  1:01 left");
  EXPECT_LE(line.size() + 19, kColumns);  // with the bar before it
}

TEST(Progress, PlainLinesAreFewOutsideATerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  Progress progress(file);
  for (int64_t step = 1; step <= 1000; ++step) {
    StepReport r = report(step);
    if (step == 500) r.validation_loss = 2.25;
    progress.step(r);
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_THAT(text, testing::HasSubstr("step 500: validation loss 2.2500"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("\r")));
}

}  // namespace
}  // namespace plait
