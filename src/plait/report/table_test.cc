#include "plait/report/table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace plait {
namespace {

TEST(Table, AlignsNumbersAndWords) {
  Table t({"rank", "sent", "note"}, "");
  t.row({"0", "9 B", "x"});
  t.row({"10", "12.5 kB", "yy"});
  EXPECT_EQ(t.text(),
            "rank     sent  note\n"
            "   0      9 B  x\n"
            "  10  12.5 kB  yy\n");
}

TEST(Table, FoldsWhatIsTooWide) {
  Table t({"name", "words"});
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word ";
  t.row({"a", words});
  std::istringstream lines(t.text());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), kColumns);
  EXPECT_GT(count, 3);
}

TEST(RankTable, JoinsEqualNeighbours) {
  EXPECT_EQ(rank_table({"rank", "n"}, {{"5"}, {"5"}, {"6"}, {"5"}}),
            "      rank  n\n    0 to 1  5\n         2  6\n         3  5\n");
}

TEST(Fold, CutsWordsThatDoNotFit) {
  EXPECT_EQ(fold("a bb ccc", 4), (std::vector<std::string>{"a bb", "ccc"}));
  EXPECT_EQ(fold("abcdefgh", 5), (std::vector<std::string>{"abc.."}));
  EXPECT_EQ(fold("", 5), (std::vector<std::string>{""}));
}

TEST(Grouped, Thousands) {
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1234567), "1 234 567");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(count_of(1, "rank"), "1 rank");
  EXPECT_EQ(count_of(8, "rank"), "8 ranks");
  EXPECT_EQ(count_of(2, "batch"), "2 batches");
}

}  // namespace
}  // namespace plait
