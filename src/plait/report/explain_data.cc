#include "plait/report/explain_data.h"

#include <algorithm>

#include "plait/report/table.h"

namespace plait {

namespace {

std::string share(double x) { return fmt::format("{:.1f} %", 100 * x); }

// What was left out or cut, in words; empty: nothing.
std::string losses(const SourceReport& r) {
  std::vector<std::string> words;
  const auto say = [&](int64_t n, std::string_view noun, std::string_view what) {
    if (n > 0) words.push_back(fmt::format("{} {}", count_of(n, noun), what));
  };
  say(r.cut_documents, "document", "longer than a slot");
  say(r.truncated_pairs, "pair", "shortened");
  say(r.dropped_pairs, "pair", "dropped");
  say(r.skipped_lines, "bad line", "skipped");
  say(r.empty_documents, "empty document", "left out");
  say(r.unlearnable_documents, "document", "with nothing to learn");
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string packing_words(const std::string& packing) {
  if (packing == "packed") return "packed end to end; ";
  if (packing == "whole") return "packed whole; ";
  return packing == "padded" ? "one document in a slot; " : "";
}

}  // namespace

std::string explain_data(const DataReport& report) {
  Table table(
      {"source", "documents", "tokens", "learned", "held out", "samples", "slots", "padding"});
  for (const SourceReport& r : report.training)
    table.row({r.path, grouped(r.documents), grouped(r.tokens), grouped(r.learnable),
               grouped(r.validation_tokens), share(r.weight), grouped(r.slots), share(r.padding)});
  for (const SourceReport& r : report.validation)
    table.row({r.path + " (validation)", grouped(r.documents), grouped(r.tokens),
               grouped(r.learnable), grouped(r.validation_tokens), "-", "-", "-"});
  std::string text = table.text();
  for (const auto* list : {&report.training, &report.validation})
    for (const SourceReport& r : *list) {
      const std::string lost = losses(r);
      text += paragraph(fmt::format("{}: {}; {}{}{}{}", r.path, r.format, packing_words(r.packing),
                                    r.cache, lost.empty() ? "" : "; ", lost),
                        "  ");
    }
  for (const std::string& note : report.notes) text += paragraph("note: " + note, "  ");
  return text;
}

std::string explain_lengths(const std::vector<int64_t>& lengths) {
  struct Row {
    int64_t documents = 0, tokens = 0;
  };
  std::vector<Row> rows;  // lengths below 1, 2, 4, 8, ...
  int64_t all = 0;
  for (const int64_t n : lengths) {
    size_t row = 0;
    while ((int64_t{1} << row) <= n) ++row;
    rows.resize(std::max(rows.size(), row + 1));
    ++rows[row].documents;
    rows[row].tokens += n;
    all += n;
  }
  Table table({"tokens", "documents", "of all documents", "of all tokens"});
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].documents == 0) continue;
    const int64_t low = i == 0 ? 0 : int64_t{1} << (i - 1), high = (int64_t{1} << i) - 1;
    const auto of = [](int64_t a, int64_t b) {
      return share(b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b));
    };
    table.row({low >= high ? grouped(low) : grouped(low) + " to " + grouped(high),
               grouped(rows[i].documents),
               of(rows[i].documents, static_cast<int64_t>(lengths.size())),
               of(rows[i].tokens, all)});
  }
  return table.text();
}

}  // namespace plait
