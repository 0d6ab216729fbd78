#include "plait/report/data_words.h"

#include "plait/report/table.h"

namespace plait {

namespace {

void add_rows(Table& table, const std::vector<SourceReport>& sources, bool training) {
  for (const SourceReport& s : sources) {
    const bool held = training && s.validation_tokens > 0;
    table.row({s.path, s.format, grouped(s.documents), grouped(s.tokens), grouped(s.learnable),
               training ? fmt::format("{:.3g}", s.weight) : "validation",
               held ? grouped(s.validation_tokens) : "-",
               fmt::format("{:.1f} %", 100 * s.padding)});
  }
}

void add_losses(std::vector<std::string>& words, const SourceReport& s) {
  const auto add = [&](int64_t n, const char* noun, const char* what) {
    if (n > 0) words.push_back(fmt::format("'{}': {} {}", s.path, count_of(n, noun), what));
  };
  add(s.skipped_lines, "bad line", "left out");
  add(s.unlearnable_documents, "document", "without a token to learn");
  add(s.truncated_pairs, "pair", "cut to fit a slot");
  add(s.dropped_pairs, "pair", "left out, longer than a slot");
}

}  // namespace

std::string explain_data(const DataReport& report, const std::string& tokenizer) {
  std::string out = fmt::format("  data, tokenised by {}\n", tokenizer);
  Table table(
      {"source", "format", "documents", "tokens", "learnable", "share", "held out", "padding"},
      "    ");
  add_rows(table, report.training, true);
  add_rows(table, report.validation, false);
  out += table.text();
  std::vector<std::string> words = report.notes;
  for (const auto* list : {&report.training, &report.validation})
    for (const SourceReport& s : *list) add_losses(words, s);
  for (const std::string& w : words) out += paragraph("note: " + w, "  ");
  return out;
}

std::string printable(std::string text) {
  for (char& c : text) {
    const auto b = static_cast<unsigned char>(c);
    if (c != '\n' && (b < 32 || b == 127)) c = '?';
  }
  return text;
}

}  // namespace plait
