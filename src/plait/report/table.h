// Text tables of at most 100 columns: left-aligned words, right-aligned numbers.
//
//   Table t({"rank", "sent"});
//   t.row({"0", "1.2 MB"});
//   fmt::print("{}", t.text());
//
// A table that would be wider has its widest column folded at spaces, or cut with "..".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plait {

inline constexpr size_t kColumns = 100;

class Table {
 public:
  explicit Table(std::vector<std::string> header, std::string indent = "  ");
  void row(std::vector<std::string> cells);  // as many as the header
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::string indent_;
};

// A table with one row per rank, from 0, that `header` opens with "rank"; neighbours with equal
// rows share one: "0 to 3".
std::string rank_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows);

// Folds at spaces into lines of at most `width`; a word that is longer is cut with "..".
std::vector<std::string> fold(std::string_view text, size_t width);
// A paragraph that fits the page, every line indented.
std::string paragraph(std::string_view text, std::string_view indent = "");
// For a terminal: control characters as '?', but line ends as they are.
std::string printable(std::string text);
// 1234567 -> "1 234 567".
std::string grouped(int64_t n);
// "1 rank", "8 ranks".
std::string count_of(int64_t n, std::string_view noun);

}  // namespace plait
