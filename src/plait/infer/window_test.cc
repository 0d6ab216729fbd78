#include "plait/infer/window.h"

#include <gmock/gmock.h>

#include "plait/model/families.h"

namespace plait {
namespace {

using testing::HasSubstr;

TEST(Window, IsWhatIsNeededAndNoMoreThanThePositions) {
  EXPECT_EQ(needed_tokens(5, 0), 5);
  EXPECT_EQ(needed_tokens(5, 1), 5);  // the last token is not looked at again
  EXPECT_EQ(needed_tokens(5, 60), 64);
  EXPECT_EQ(window_for(1, 0), 64);
  EXPECT_EQ(window_for(64, 0), 64);
  EXPECT_EQ(window_for(65, 0), 128);
  EXPECT_EQ(window_for(300, 256), 256);
  EXPECT_EQ(window_for(10, 12), 12);
}

TEST(Window, PositionsAreTheModelsOwn) {
  EXPECT_EQ(positions_of(load_model("gpt2-tiny", {1, 1}, Head::logits)), 64);
  const Model llama = load_model("llama-tiny", {1, 1}, Head::logits);
  EXPECT_EQ(positions_of(llama), 64);
  Model unknown = llama;
  unknown.config_json.clear();
  EXPECT_EQ(positions_of(unknown), 0);
}

TEST(Window, SaysHowMuchIsLeftOut) {
  EXPECT_EQ(left_out_note(10, 55, 64), "");
  EXPECT_THAT(left_out_note(100, 1, 64),
              HasSubstr("the first 36 of the prompt's 100 are left out"));
  EXPECT_THAT(left_out_note(10, 65, 64), HasSubstr("of 74 with the continuation, up to 10 from"));
}

}  // namespace
}  // namespace plait
