#include "plait/data/token_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "plait/base/dtype.h"
#include "plait/io/json.h"

static_assert(std::endian::native == std::endian::little, "caches are little-endian");

namespace plait {

namespace {

constexpr int64_t kBlockTokens = 4096;
constexpr std::string_view kMagic = "PLAITTOK", kEnd = "PLAITEND";
constexpr int64_t kVersion = 1, kMaxHeaderBytes = 1 << 26;
constexpr int64_t kTrailerBytes = 40;  // offset and size of the header, documents, digest, kEnd

int64_t mask_bytes(bool masked) { return masked ? kBlockTokens / 8 : 0; }
int64_t block_bytes(int64_t width, bool masked) {
  return kBlockTokens * width + mask_bytes(masked) + 8;
}
int64_t width_of(int64_t vocabulary) {
  return vocabulary <= 1 << 8 ? 1 : vocabulary <= 1 << 16 ? 2 : 4;
}

std::string_view view(const void* data, int64_t bytes) {
  return {static_cast<const char*>(data), static_cast<size_t>(bytes)};
}

uint64_t tables_digest(std::string_view offsets, std::string_view header) {
  return digest(fmt::format("{} {}", digest(offsets), digest(header)));
}

template <class T>
T load(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

int32_t load_id(const unsigned char* ids, int64_t width, int64_t i) {
  if (width == 1) return ids[i];
  if (width == 2) return load<uint16_t>(ids + 2 * i);
  return load<int32_t>(ids + 4 * i);
}

int64_t get_count(const nlohmann::json& header, const char* key, int64_t least,
                  const std::string& path) {
  const auto it = header.find(key);
  if (it == header.end() || !it->is_number_integer()) fail("'{}': header without '{}'", path, key);
  if (it->is_number_unsigned() && it->get<uint64_t>() > INT64_MAX)
    fail("'{}': '{}' is {}", path, key, it->get<uint64_t>());
  const auto n = it->get<int64_t>();
  if (n < least) fail("'{}': '{}' is {}", path, key, n);
  return n;
}

bool get_flag(const nlohmann::json& header, const char* key, const std::string& path) {
  const auto it = header.find(key);
  if (it == header.end() || !it->is_boolean()) fail("'{}': header without '{}'", path, key);
  return it->get<bool>();
}

}  // namespace

// ---- writing ------------------------------------------------------------------------------

TokenCacheWriter::TokenCacheWriter(const std::string& path, int64_t vocabulary, bool masked,
                                   bool paired)
    : file_(path),
      width_(width_of(vocabulary)),
      masked_(masked),
      paired_(paired),
      block_(static_cast<size_t>(block_bytes(width_, masked))) {
  file_.write(kMagic.data(), kMagic.size());
  bytes_ = static_cast<int64_t>(kMagic.size());
}

void TokenCacheWriter::add(std::span<const int32_t> ids, std::span<const uint8_t> learn) {
  PLAIT_CHECK(!masked_ || learn.size() == ids.size(), "{} ids, {} flags", ids.size(), learn.size());
  const int64_t limit = width_ == 4 ? int64_t{1} << 31 : int64_t{1} << 8 * width_;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= limit)
      fail("document {}: the tokenizer gave the id {}; needs 0 to {}", documents(), ids[i],
           limit - 1);
    std::memcpy(block_.data() + in_block_ * width_, &ids[i], static_cast<size_t>(width_));
    const bool learned = !masked_ || learn[i] != 0;
    if (masked_ && learned)
      block_[static_cast<size_t>(kBlockTokens * width_ + in_block_ / 8)] |=
          static_cast<unsigned char>(1 << in_block_ % 8);
    // The first token of a document is no label, whatever its flag.
    document_learnable_ += learned && tokens_ > offsets_.back() ? 1 : 0;
    largest_id_ = std::max(largest_id_, ids[i]);
    ++tokens_;
    if (++in_block_ == kBlockTokens) flush_block();
  }
}

void TokenCacheWriter::end_document() {
  offsets_.push_back(tokens_);
  learnable_ += document_learnable_;
  unlearnable_documents_ += document_learnable_ == 0 ? 1 : 0;
  document_learnable_ = 0;
}

void TokenCacheWriter::flush_block() {
  const size_t content = block_.size() - 8;
  const uint64_t sum = digest(view(block_.data(), static_cast<int64_t>(content)));
  std::memcpy(block_.data() + content, &sum, 8);
  content_.add(&sum, 8);
  file_.write(block_.data(), block_.size());
  bytes_ += static_cast<int64_t>(block_.size());
  std::fill(block_.begin(), block_.end(), static_cast<unsigned char>(0));
  in_block_ = 0;
}

void TokenCacheWriter::commit(const nlohmann::json& stamp, bool sync) {
  PLAIT_CHECK(offsets_.back() == tokens_, "a document is not ended");
  if (in_block_ > 0) flush_block();
  const auto table_bytes = static_cast<int64_t>(offsets_.size() * 8);
  content_.add(offsets_.data(), static_cast<size_t>(table_bytes));
  const nlohmann::json header = {{"version", kVersion},
                                 {"width", width_},
                                 {"masked", masked_},
                                 {"paired", paired_},
                                 {"tokens", tokens_},
                                 {"learnable", learnable_},
                                 {"unlearnable_documents", unlearnable_documents_},
                                 {"largest_id", largest_id_},
                                 {"content", content_.text()},
                                 {"stamp", stamp}};
  const std::string text = header.dump();
  const std::array<int64_t, 4> trailer = {
      bytes_ + table_bytes, static_cast<int64_t>(text.size()), documents(),
      static_cast<int64_t>(tables_digest(view(offsets_.data(), table_bytes), text))};
  file_.write(offsets_.data(), static_cast<size_t>(table_bytes));
  file_.write(text.data(), text.size());
  file_.write(trailer.data(), sizeof trailer);
  file_.write(kEnd.data(), kEnd.size());
  file_.commit(sync);
}

// ---- reading ------------------------------------------------------------------------------

TokenCache::TokenCache(const std::string& path) : file_(path) { read_tables(); }

void TokenCache::read_tables() {
  const std::string& path = file_.path();
  const auto begin = static_cast<int64_t>(kMagic.size());
  if (file_.size() < begin + kTrailerBytes) fail("'{}' is no cache: {} bytes", path, file_.size());
  std::array<unsigned char, kTrailerBytes> trailer;
  std::string magic(kMagic.size(), ' ');
  file_.read(0, magic.data(), begin);
  file_.read(file_.size() - kTrailerBytes, trailer.data(), kTrailerBytes);
  if (magic != kMagic || view(&trailer[32], 8) != kEnd)
    fail("'{}' is no cache, or it is cut off", path);
  const auto header_at = load<int64_t>(&trailer[0]), header_bytes = load<int64_t>(&trailer[8]),
             documents = load<int64_t>(&trailer[16]);
  const int64_t end = file_.size() - kTrailerBytes;
  if (header_bytes < 2 || header_bytes > kMaxHeaderBytes || header_at != end - header_bytes ||
      documents < 0 || documents > header_at / 8 - 1)
    fail("'{}': header of {} bytes at {} in {} bytes, {} documents", path, header_bytes, header_at,
         file_.size(), documents);
  const int64_t table_bytes = 8 * (documents + 1), table_at = header_at - table_bytes;
  if (table_at < begin) fail("'{}': {} documents do not fit before the header", path, documents);
  offsets_.resize(static_cast<size_t>(documents + 1));
  file_.read(table_at, offsets_.data(), table_bytes);
  std::string text(static_cast<size_t>(header_bytes), ' ');
  file_.read(header_at, text.data(), header_bytes);
  if (tables_digest(view(offsets_.data(), table_bytes), text) != load<uint64_t>(&trailer[24]))
    fail("'{}': header or offsets damaged", path);

  const nlohmann::json header = parse_json(text, "'" + path + "'", 16, 1 << 20);
  if (!header.is_object() || get_count(header, "version", 0, path) != kVersion)
    fail("'{}': another version of the format", path);
  width_ = get_count(header, "width", 1, path);
  if (width_ != 1 && width_ != 2 && width_ != 4) fail("'{}': ids of {} bytes", path, width_);
  masked_ = get_flag(header, "masked", path);
  paired_ = get_flag(header, "paired", path);
  const int64_t tokens = get_count(header, "tokens", 0, path);
  learnable_ = get_count(header, "learnable", 0, path);
  unlearnable_documents_ = get_count(header, "unlearnable_documents", 0, path);
  largest_id_ = get_count(header, "largest_id", -1, path);
  const auto content = header.find("content");
  if (content == header.end() || !content->is_string())
    fail("'{}': header without 'content'", path);
  content_ = content->get<std::string>();
  const int64_t blocks = tokens / kBlockTokens + (tokens % kBlockTokens > 0 ? 1 : 0);
  if (checked_mul(blocks, block_bytes(width_, masked_)) != table_at - begin)
    fail("'{}': {} tokens in {} bytes", path, tokens, table_at - begin);
  if (offsets_.front() != 0 || offsets_.back() != tokens ||
      !std::is_sorted(offsets_.begin(), offsets_.end()) || (paired_ && documents % 2 != 0))
    fail("'{}': offsets of documents do not fit", path);
  stamp_ = header.value("stamp", nlohmann::json());
}

void TokenCache::read_block(int64_t block, std::vector<unsigned char>& bytes) const {
  const int64_t size = block_bytes(width_, masked_);
  bytes.resize(static_cast<size_t>(size));
  file_.read(static_cast<int64_t>(kMagic.size()) + block * size, bytes.data(), size);
  if (digest(view(bytes.data(), size - 8)) != load<uint64_t>(bytes.data() + size - 8))
    fail("'{}': block {} of the tokenised data is damaged; delete the file, and it is made anew",
         path(), block);
}

void TokenCache::read(int64_t begin, int64_t end, int32_t* ids, uint8_t* learn) const {
  PLAIT_CHECK(begin >= 0 && begin <= end && end <= tokens(), "tokens {} to {} of {}", begin, end,
              tokens());
  std::vector<unsigned char> bytes;
  for (int64_t at = begin; at < end;) {
    const int64_t block = at / kBlockTokens, first = block * kBlockTokens;
    read_block(block, bytes);
    const unsigned char* mask = bytes.data() + kBlockTokens * width_;
    for (const int64_t stop = std::min(end, first + kBlockTokens); at < stop; ++at) {
      const int64_t i = at - first;
      *ids++ = load_id(bytes.data(), width_, i);
      *learn++ = !masked_ || (mask[i / 8] >> i % 8 & 1) != 0 ? 1 : 0;
    }
  }
}

void TokenCache::verify(const std::function<void(int64_t, int64_t)>& progress) const {
  std::vector<unsigned char> bytes;
  for (int64_t at = 0; at < tokens(); at += kBlockTokens) {
    read_block(at / kBlockTokens, bytes);
    if (progress && at % (kBlockTokens * 256) == 0) progress(at, tokens());
  }
}

}  // namespace plait
