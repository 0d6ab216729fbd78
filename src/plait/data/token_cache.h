// Our own file of tokenised documents: what tokenising leaves behind, so that it is done once.
//
//   TokenCacheWriter writer(path, vocabulary, masked);
//   writer.add(ids, learn);  writer.end_document();
//   writer.commit({{"tokenizer", "..."}});         // atomically; the stamp says what it is good
//   for TokenCache cache(path);                         // throws Error when it is damaged in any
//   bit
//
// Layout, little-endian: "PLAITTOK"; blocks of 4096 tokens; offsets of the documents (int64);
// a JSON header; and 40 bytes that say where these lie. A block holds the ids (1, 2 or 4 bytes
// each), a bit per token that says whether it is to be learned (when `masked`), and a digest of
// both. Blocks are read with pread into memory of our own and their digests compared each time: a
// mapped file could change after it was checked.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "plait/base/digest.h"
#include "plait/data/store.h"
#include "plait/io/files.h"

namespace plait {

class TokenCacheWriter {
 public:
  TokenCacheWriter(const std::string& path, int64_t vocabulary, bool masked, bool paired);
  // Tokens of the document that is being written. `learn` is ignored unless `masked`.
  void add(std::span<const int32_t> ids, std::span<const uint8_t> learn);
  void end_document();
  void commit(const nlohmann::json& stamp, bool sync = true);

  int64_t documents() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t tokens() const { return tokens_; }

 private:
  void flush_block();
  AtomicFile file_;
  int64_t width_;
  bool masked_, paired_;
  std::vector<unsigned char> block_;
  Digest128 content_;  // of the digests of the blocks, then the offsets
  int64_t in_block_ = 0, tokens_ = 0, learnable_ = 0, unlearnable_documents_ = 0, bytes_ = 0;
  int64_t document_learnable_ = 0;
  int32_t largest_id_ = -1;
  std::vector<int64_t> offsets_{0};
};

class TokenCache final : public TokenStore {
 public:
  explicit TokenCache(const std::string& path);
  // Reads every block once. `progress`: tokens done, tokens in all.
  void verify(const std::function<void(int64_t, int64_t)>& progress) const;

  const std::string& path() const override { return file_.path(); }
  int64_t documents() const override { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t begin(int64_t document) const override { return offsets_[static_cast<size_t>(document)]; }
  bool paired() const override { return paired_; }
  std::string content() const override { return content_; }
  void read(int64_t begin, int64_t end, int32_t* ids, uint8_t* learn) const override;

  const nlohmann::json& stamp() const { return stamp_; }
  int64_t learnable() const { return learnable_; }  // all tokens when not masked
  int64_t unlearnable_documents() const { return unlearnable_documents_; }
  int64_t largest_id() const { return largest_id_; }

 private:
  void read_tables();
  void read_block(int64_t block, std::vector<unsigned char>& bytes) const;
  InputFile file_;
  nlohmann::json stamp_;
  int64_t width_ = 0, learnable_ = 0, unlearnable_documents_ = 0, largest_id_ = -1;
  std::string content_;
  bool masked_ = false, paired_ = false;
  std::vector<int64_t> offsets_;
};

}  // namespace plait
