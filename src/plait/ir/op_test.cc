#include "plait/ir/op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plait {
namespace {

using testing::HasSubstr;

TEST(Rule, NamesFactorsAndContractions) {
  const Rule rule = parse_rule("t ~h, k! m, . -> t ~h ; m max, k lse");
  ASSERT_EQ(rule.in.size(), 3u);
  EXPECT_TRUE(rule.in[0][1].proportional);
  EXPECT_FALSE(rule.in[0][0].proportional);
  EXPECT_TRUE(rule.in[1][0].whole);
  EXPECT_TRUE(rule.in[2].empty());
  EXPECT_EQ(rule.contracted, (std::map<char, Reduce>{{'k', Reduce::lse}, {'m', Reduce::max}}));
  EXPECT_EQ(parse_rule("t k, n k -> t n").contracted.at('k'), Reduce::sum);
}

TEST(Rule, RefusesWhatItCannotRead) {
  const std::pair<const char*, const char*> cases[] = {
      {"t k, n k", "no arrow"},
      {"t 2 -> t", "character '2'"},
      {"! t -> t", "without a factor"},
      {"t -> t v", "factor 'v' of no operand"},
      {"t v -> t ; v mean", "unknown reduction"},
      {"t v -> t ; t lse", "not contracted"},
  };
  for (const auto& [text, reason] : cases) try {
      parse_rule(text);
      ADD_FAILURE() << text;
    } catch (const std::logic_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
}

TEST(InferTypes, SaysWhatIsWrongWithACall) {
  const TensorType x{Dtype::f32, {{"T", 4}, {"D", 6, 2}}}, w{Dtype::f32, {{"D", 6}}};
  try {
    infer_types(find_op("add_bias"), {}, {x, w});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "op 'add_bias' operand 1 dimension 0: found 6 in units of 1, "
                 "expected 6 in units of 2");
  }
  try {
    find_op("no_such_op");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown op 'no_such_op'"));
  }
}

}  // namespace
}  // namespace plait
