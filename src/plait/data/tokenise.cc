#include "plait/data/tokenise.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <thread>

#include "plait/base/error.h"
#include "plait/data/streams.h"
#include "plait/data/token_cache.h"

namespace plait {

namespace {

constexpr size_t kBatchBytes = size_t{1} << 22, kBatchItems = 1 << 13;
constexpr size_t kMaxNotes = 3;

// What one thread encodes at a time: a line of JSON or a piece of text.
struct Item {
  std::string text;
  size_t file = 0;
  int64_t line = 1, offset = 0;
  bool first = true, last = true;  // of its document; JSON: both
  std::vector<TokenDocument> documents;
  std::string error;
};

// Yields the items of all files in order.
class ItemReader {
 public:
  ItemReader(const SourceFiles& files, const std::string& separator, size_t piece_bytes)
      : files_(files), separator_(separator), piece_bytes_(piece_bytes) {}

  bool next(Item& item) {
    for (; file_ < files_.paths.size(); close()) {
      item.file = file_;
      if (files_.format == Format::jsonl ? next_line(item) : next_piece(item)) return true;
    }
    return false;
  }
  // Bytes of the open file that were read, for progress.
  int64_t consumed() const {
    return lines_ ? lines_->bytes().consumed() : documents_ ? documents_->bytes().consumed() : 0;
  }
  int64_t done() const { return done_ + consumed(); }
  const std::vector<std::string>& digests() const { return digests_; }

 private:
  bool next_line(Item& item) {
    if (!lines_) lines_ = std::make_unique<LineReader>(files_.paths[file_]);
    do {
      if (!lines_->next(item.text)) return false;
    } while (is_blank(item.text));
    item.line = lines_->number();
    return true;
  }
  bool next_piece(Item& item) {
    if (!documents_)
      documents_ = std::make_unique<DocumentReader>(files_.paths[file_], separator_, piece_bytes_);
    DocumentReader::TextPiece piece;
    if (!documents_->next(piece)) return false;
    item.text = std::move(piece.text);
    item.line = piece.line;
    item.offset = piece.offset;
    item.first = piece.first;
    item.last = piece.last;
    return true;
  }
  void close() {
    const ByteStream& bytes = lines_ ? lines_->bytes() : documents_->bytes();
    done_ += bytes.consumed();
    digests_.push_back(bytes.digest());
    lines_.reset();
    documents_.reset();
    ++file_;
  }

  const SourceFiles& files_;
  std::string separator_;
  size_t piece_bytes_, file_ = 0;
  int64_t done_ = 0;
  std::unique_ptr<LineReader> lines_;
  std::unique_ptr<DocumentReader> documents_;
  std::vector<std::string> digests_;
};

void check_piece(const Item& item) {
  const auto at = find_invalid_utf8(item.text);
  if (!at) return;
  const int64_t line =
      item.line +
      std::count(item.text.begin(), item.text.begin() + static_cast<std::ptrdiff_t>(*at), '\n');
  fail("line {}, byte {} of the file: {:#04x} is not valid UTF-8; convert the text to UTF-8", line,
       item.offset + static_cast<int64_t>(*at), static_cast<unsigned char>(item.text[*at]));
}

void encode(Item& item, const SourceFiles& files, const Encoder& encoder, bool check_utf8) {
  try {
    if (files.format == Format::jsonl) {
      item.documents = encoder.record(files.shape, parse_record(item.text));
      return;
    }
    if (check_utf8) check_piece(item);
    item.documents.push_back(encoder.text(item.text, item.first, item.last));
  } catch (const Error& e) {
    item.error = e.what();
  } catch (const nlohmann::json::exception& e) {
    item.error = e.what();
  }
}

// Encodes all items, on several threads; an exception that is no Error goes to the caller.
void encode_all(std::vector<Item>& items, const SourceFiles& files, const Encoder& encoder,
                bool check_utf8, int threads) {
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(threads));
  const auto work = [&](size_t thread) {
    try {
      for (size_t i = next++; i < items.size(); i = next++)
        encode(items[i], files, encoder, check_utf8);
    } catch (...) {
      failures[thread] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  const size_t n = std::min(static_cast<size_t>(threads), items.size());
  for (size_t t = 1; t < n; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& t : others) t.join();
  for (const std::exception_ptr& e : failures)
    if (e) std::rethrow_exception(e);
}

int thread_count(int asked) {
  if (asked < 0 || asked > 256) fail("{} threads for tokenising; needs 0 to 256", asked);
  if (asked > 0) return asked;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
}

std::string place(const Item& item, const SourceFiles& files) {
  return files.format == Format::jsonl ? fmt::format("{}:{}", files.paths[item.file], item.line)
                                       : "'" + files.paths[item.file] + "'";
}

void write(Item& item, const SourceFiles& files, bool skip_bad_lines, TokeniseResult& result,
           TokenCacheWriter& writer) {
  if (!item.error.empty()) {
    const std::string what = place(item, files) + ": " + item.error;
    if (files.format != Format::jsonl || !skip_bad_lines) fail("{}", what);
    if (static_cast<size_t>(result.skipped_lines++) < kMaxNotes)
      result.notes.push_back("skipped " + what);
    return;
  }
  if (item.documents.empty()) ++result.empty_documents;
  for (const TokenDocument& d : item.documents) {
    writer.add(d.ids, d.learn);
    if (item.last) writer.end_document();
  }
}

}  // namespace

TokeniseResult tokenise(const SourceFiles& files, const DataConfig& config, const Encoder& encoder,
                        bool check_utf8, size_t piece_bytes, const DataProgress& progress,
                        TokenCacheWriter& writer) {
  const int threads = thread_count(config.threads);
  int64_t total = 0, long_documents = 0;
  for (const std::string& path : files.paths) total += InputFile(path).size();
  ItemReader reader(files, config.separator, piece_bytes);
  TokeniseResult result;
  for (bool more = true; more;) {
    std::vector<Item> items;
    size_t bytes = 0;
    while (bytes < kBatchBytes && items.size() < kBatchItems) {
      Item item;
      more = reader.next(item);
      if (!more) break;
      bytes += item.text.size();
      long_documents += item.first && !item.last ? 1 : 0;
      items.push_back(std::move(item));
    }
    encode_all(items, files, encoder, check_utf8, threads);
    for (Item& item : items) write(item, files, config.skip_bad_lines, result, writer);
    if (progress) progress(fmt::format("tokenising '{}'", files.root), reader.done(), total);
  }
  result.digests = reader.digests();
  if (long_documents > 0)
    result.notes.push_back(
        fmt::format("'{}': {} documents of more than {} MB were tokenised in "
                    "pieces",
                    files.root, long_documents, piece_bytes >> 20));
  if (writer.documents() == 0)
    fail("'{}': no documents{}", files.root,
         result.skipped_lines > 0 ? fmt::format("; {} lines were skipped, the first: {}",
                                                result.skipped_lines, result.notes.front())
                                  : "");
  return result;
}

}  // namespace plait
