#include "plait/report/table.h"

#include <algorithm>

#include "plait/base/error.h"

namespace plait {

namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowest = 12;  // what folding leaves of a column at least

bool is_number(const std::string& cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) != 0 || cell == "-");
}

size_t width_of(const std::vector<size_t>& widths) {
  size_t sum = 0;
  for (const size_t w : widths) sum += w + kGap;
  return sum - kGap;
}

}  // namespace

std::vector<std::string> fold(std::string_view text, size_t width) {
  std::vector<std::string> lines(1);
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    std::string word(text.substr(begin, end - begin));
    if (word.size() > width) word = word.substr(0, width - 2) + "..";
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
    begin = end + 1;
  }
  return lines;
}

std::string paragraph(std::string_view text, std::string_view indent) {
  std::string out;
  for (const std::string& line : fold(text, kColumns - indent.size()))
    out += fmt::format("{}{}\n", indent, line);
  return out;
}

std::string printable(std::string text) {
  for (char& c : text) {
    const auto b = static_cast<unsigned char>(c);
    if (c != '\n' && (b < 32 || b == 127)) c = '?';
  }
  return text;
}

std::string grouped(int64_t n) {
  std::string s = std::to_string(n);
  for (auto i = static_cast<int64_t>(s.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3)
    s.insert(static_cast<size_t>(i), " ");
  return s;
}

std::string count_of(int64_t n, std::string_view noun) {
  const bool es = noun.ends_with("ch") || noun.ends_with("s");
  return fmt::format("{} {}{}", grouped(n), noun, n == 1 ? "" : es ? "es" : "s");
}

Table::Table(std::vector<std::string> header, std::string indent) : indent_(std::move(indent)) {
  rows_.push_back(std::move(header));
}

void Table::row(std::vector<std::string> cells) {
  PLAIT_CHECK(cells.size() == rows_[0].size(), "{} cells under {} headers", cells.size(),
              rows_[0].size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  const size_t columns = rows_[0].size();
  std::vector<size_t> widths(columns, 0);
  std::vector<bool> numeric(columns, rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r)
    for (size_t c = 0; c < columns; ++c) {
      widths[c] = std::max(widths[c], rows_[r][c].size());
      if (r > 0 && !is_number(rows_[r][c])) numeric[c] = false;
    }
  while (width_of(widths) + indent_.size() > kColumns) {
    size_t& widest = *std::max_element(widths.begin(), widths.end());
    if (widest <= kNarrowest) break;
    --widest;
  }
  std::string out;
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 0;
    for (size_t c = 0; c < columns; ++c) {
      // A cell that fits keeps its own spaces.
      cells.push_back(row[c].size() <= widths[c] ? std::vector{row[c]} : fold(row[c], widths[c]));
      height = std::max(height, cells.back().size());
    }
    for (size_t line = 0; line < height; ++line) {
      std::string s;
      for (size_t c = 0; c < columns; ++c) {
        const std::string cell = line < cells[c].size() ? cells[c][line] : "";
        if (c > 0) s.append(kGap, ' ');
        s += numeric[c] ? fmt::format("{:>{}}", cell, widths[c])
                        : fmt::format("{:<{}}", cell, widths[c]);
      }
      s.erase(s.find_last_not_of(' ') + 1);
      out += indent_ + s + "\n";
    }
  }
  return out;
}

std::string rank_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows) {
  Table table(header, "    ");
  for (size_t first = 0; first < rows.size();) {
    size_t end = first + 1;
    while (end < rows.size() && rows[end] == rows[first]) ++end;
    std::vector<std::string> cells = rows[first];
    cells.insert(cells.begin(), end - first == 1 ? std::to_string(first)
                                                 : fmt::format("{} to {}", first, end - 1));
    table.row(std::move(cells));
    first = end;
  }
  return table.text();
}

}  // namespace plait
