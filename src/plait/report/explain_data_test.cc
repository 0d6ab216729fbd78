#include "plait/report/explain_data.h"

#include <gmock/gmock.h>

#include "plait/report/table.h"

namespace plait {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ExplainData, SaysOnlyWhatThereIs) {
  SourceReport r;
  r.path = "a.jsonl";
  r.format = "jsonl (texts), from its name";
  r.packing = "whole";
  r.cache = "read from '.a'";
  r.documents = 1234567;
  r.weight = 0.25;
  r.padding = 0.125;
  r.skipped_lines = 2;
  const std::string text = explain_data({{r}, {}, {"skipped a.jsonl:3"}});
  for (const char* part : {"1 234 567", "25.0 %", "12.5 %", "2 bad lines skipped",
                           "; packed whole; read from", "note: skipped a.jsonl:3"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("dropped")));
}

TEST(ExplainData, LengthsFallIntoPowersOfTwo) {
  const std::string text = explain_lengths({0, 1, 2, 3, 4, 7, 8, 1000});
  for (const char* part : {"2 to 3", "4 to 7", "8 to 15", "512 to 1 023", "25.0 %"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("16 to 31")));
}

}  // namespace
}  // namespace plait
