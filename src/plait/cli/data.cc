// plait data inspect PATH, plait data convert PATH OUT.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "plait/base/error.h"
#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/cli/open_data.h"
#include "plait/data/megatron.h"
#include "plait/data/split.h"
#include "plait/data/tokenise.h"
#include "plait/io/files.h"
#include "plait/report/explain_data.h"
#include "plait/report/progress.h"
#include "plait/report/table.h"

namespace plait {

namespace {

constexpr int64_t kShownTokens = 200;

struct DataOptions {
  DataSource source;
  DataConfig config;
  std::string tokenizer, out;
  int64_t samples = 3;
};

// A source with the tokenizer that it is read with.
struct Opened {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<TokenStore> store;
  SourceReport report;
  std::vector<std::string> notes;
};

Opened open(const DataOptions& o) {
  Opened opened;
  Text text = open_text(o.tokenizer, "", 0);
  BytesProgress progress(stderr);
  opened.store = open_store(
      o.source, o.config, *text.tokenizer, text.renderer(),
      [&](const std::string& what, int64_t done, int64_t all) { progress.show(what, done, all); },
      opened.report, opened.notes);
  opened.tokenizer = std::move(text.tokenizer);
  return opened;
}

// The document, cut into what is learned and what is masked.
void print_document(const Opened& data, int64_t document) {
  const int64_t begin = data.store->begin(document);
  const int64_t n = std::min(data.store->length(document), kShownTokens);
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::vector<uint8_t> learn(ids.size());
  data.store->read(begin, begin + n, ids.data(), learn.data());
  std::string name = fmt::format("document {}", document);
  if (data.store->paired())
    name = fmt::format("pair {}, {}", document / 2, document % 2 == 0 ? "chosen" : "rejected");
  fmt::print("\n  {}: {}\n", name, count_of(data.store->length(document), "token"));
  for (size_t i = 0; i < ids.size();) {
    size_t end = i + 1;
    while (end < ids.size() && learn[end] == learn[i]) ++end;
    std::string text = data.tokenizer->decode({&ids[i], end - i});
    std::string shown;
    for (const char c : text) {
      if (c == '\n')
        shown += "\\n";
      else if (static_cast<unsigned char>(c) < 32)
        shown += ' ';
      else
        shown += c;
    }
    fmt::print("    {} | {}\n", learn[i] != 0 ? "learned" : "masked ", shown);
    i = end;
  }
  if (n < data.store->length(document)) fmt::print("            ...\n");
}

void print_packing(const DataOptions& o, const TokenStore& store) {
  UnitsReport units;
  const std::vector<PackUnit> whole =
      whole_units(store, o.config.slot_tokens, o.config.long_pairs, units);
  if (whole.empty()) return;
  Table table({"packing", "slots of an epoch", "padding"});
  for (const char* name : {"packed", "whole", "padded"}) {
    if (store.paired() && std::string_view(name) == "packed") continue;
    const Packing packing(whole, parse_pack_mode(name), o.config.slot_tokens, store.paired(),
                          PackOrder{});
    const double room =
        static_cast<double>(packing.slots()) * static_cast<double>(o.config.slot_tokens);
    table.row({name, grouped(packing.slots()),
               fmt::format("{:.1f} %", 100 * (1 - static_cast<double>(packing.tokens()) / room))});
  }
  fmt::print("\n  slots of {} tokens:\n{}", o.config.slot_tokens, table.text());
  if (units.truncated_pairs + units.dropped_pairs > 0)
    fmt::print("  {} shortened, {} dropped: longer than a slot\n",
               count_of(units.truncated_pairs, "pair"), count_of(units.dropped_pairs, "pair"));
}

void run_inspect(const DataOptions& o) {
  const Opened data = open(o);
  const SourceReport& r = data.report;
  fmt::print("{}: {}, {}, tokens of the kind '{}' from a vocabulary of {}\n", r.path, r.format,
             count_of(r.files, "file"), data.tokenizer->kind(),
             grouped(data.tokenizer->vocabulary()));
  fmt::print("  {}, {}, {} of them to be learned\n",
             count_of(r.documents, data.store->paired() ? "pair" : "document"),
             count_of(r.tokens, "token"), grouped(r.learnable));
  const auto say = [](int64_t n, std::string_view noun, std::string_view what) {
    if (n > 0) fmt::print("  {} {}\n", count_of(n, noun), what);
  };
  say(r.unlearnable_documents, "document", "with nothing to learn");
  say(r.empty_documents, "empty document", "left out");
  say(r.skipped_lines, "bad line", "skipped");
  for (const std::string& note : data.notes) fmt::print("{}", paragraph("note: " + note, "  "));
  std::vector<int64_t> lengths;
  for (int64_t d = 0; d < data.store->documents(); ++d) lengths.push_back(data.store->length(d));
  fmt::print("\n{}", explain_lengths(lengths));
  print_packing(o, *data.store);
  const int64_t shown = o.samples * (data.store->paired() ? 2 : 1);
  for (int64_t d = 0; d < std::min(shown, data.store->documents()); ++d) print_document(data, d);
}

void run_convert(const DataOptions& o) {
  const Opened data = open(o);
  const TokenStore& store = *data.store;
  if (store.paired())
    fail("'{}' holds preference pairs; Megatron's files have no place for them", o.source.path);
  MegatronWriter writer(o.out, data.tokenizer->vocabulary());
  std::vector<int32_t> ids;
  std::vector<uint8_t> learn;
  for (int64_t d = 0; d < store.documents(); ++d) {
    constexpr int64_t kPart = 1 << 20;
    for (int64_t at = store.begin(d); at < store.begin(d + 1); at += kPart) {
      const int64_t end = std::min(at + kPart, store.begin(d + 1));
      ids.resize(static_cast<size_t>(end - at));
      learn.resize(ids.size());
      store.read(at, end, ids.data(), learn.data());
      writer.add(ids);
    }
    writer.end_document();
  }
  writer.commit();
  fmt::print("{}: {}, {}\n", megatron_prefix(o.out) + ".bin, .idx",
             count_of(store.documents(), "document"), count_of(store.tokens(), "token"));
  if (data.report.format.starts_with("jsonl") &&
      data.report.format.find("(texts)") == std::string::npos)
    fmt::print("note: Megatron's files say nothing of masks: all tokens will be learned\n");
}

void add_source_options(CLI::App& command, DataOptions& o) {
  command.add_option("PATH", o.source.path, "a file, a folder, a pattern, or a Megatron prefix")
      ->check(a_path())
      ->required();
  command.add_option("--format", o.source.format, "auto, text, jsonl or megatron")
      ->capture_default_str();
  command
      .add_option("--tokenizer", o.tokenizer,
                  "a folder, tokenizer.json or .model file; left out: bytes")
      ->check(a_path());
  command.add_option("--separator", o.config.separator, "between documents of a text file");
  command.add_flag("--skip-bad-lines", o.config.skip_bad_lines, "of JSON lines, and count them");
}

}  // namespace

void add_data(CLI::App& app) {
  CLI::App* group = app.add_subcommand("data", "training data: what is in it; conversion");
  group->require_subcommand(1);
  auto o = std::make_shared<DataOptions>();
  o->config.cache = false;
  o->config.slot_tokens = 1024;
  CLI::App* inspect = group->add_subcommand("inspect", "documents, lengths, packing, samples");
  add_source_options(*inspect, *o);
  inspect->add_option("--slot-tokens", o->config.slot_tokens, "for the share of padding")
      ->check(whole_number(2, kMaxSlots))
      ->capture_default_str();
  inspect->add_option("--samples", o->samples, "documents to show")
      ->check(whole_number(0, 1000))
      ->capture_default_str();
  inspect->callback([o] { run_inspect(*o); });
  CLI::App* convert = group->add_subcommand("convert", "write Megatron's .bin and .idx");
  add_source_options(*convert, *o);
  convert->add_option("OUT", o->out, "OUT.bin and OUT.idx are written")
      ->check(a_path())
      ->required();
  convert->callback([o] { run_convert(*o); });
}

}  // namespace plait
