// Megatron's token files: NAME.bin holds ids, NAME.idx says where sequences and documents lie.
//
//   const MegatronStore store("corpus");            // or "corpus.bin", "corpus.idx"
//   MegatronWriter writer("out", vocabulary);
//   writer.add(ids);  writer.end_document();  writer.commit();
//
// The index, little-endian: "MMIDIDX\0\0", version 1 (u64), type code (u8), sequences n (u64),
// documents + 1 (u64), n lengths (i32), n byte offsets (i64), and the number of the first sequence
// of each document, with n at the end (i64).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "plait/data/store.h"
#include "plait/io/files.h"

namespace plait {

// "corpus" of "corpus", "corpus.bin" and "corpus.idx".
std::string megatron_prefix(const std::string& path);

class MegatronStore final : public TokenStore {
 public:
  // All of the index is checked, against itself and the size of the .bin file; ids are not.
  explicit MegatronStore(const std::string& path);

  const std::string& path() const override { return ids_.path(); }
  int64_t documents() const override { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t begin(int64_t document) const override { return offsets_[static_cast<size_t>(document)]; }
  bool paired() const override { return false; }
  std::string content() const override { return content_; }
  void set_content(std::string digest) { content_ = std::move(digest); }  // as check_ids gives it
  // Ids that do not fit into 32 bits are read as -1.
  void read(int64_t begin, int64_t end, int32_t* ids, uint8_t* learn) const override;

  std::string_view type() const;  // "uint16"
  int64_t sequences() const { return sequences_; }

 private:
  void read_index(const InputFile& index);
  InputFile ids_;
  int code_ = 0;
  std::string content_;
  int64_t sequences_ = 0;
  std::vector<int64_t> offsets_;  // in tokens, of documents
};

class MegatronWriter {
 public:
  // Ids are written as uint16 where the vocabulary is below 65500, else as int32, as Megatron does.
  MegatronWriter(const std::string& prefix, int64_t vocabulary);
  void add(std::span<const int32_t> ids);
  void end_document();  // one sequence each; at most 2^31 - 1 tokens
  void commit();

 private:
  std::string prefix_;
  int64_t vocabulary_;
  AtomicFile ids_;
  std::vector<int32_t> lengths_;
  int64_t length_ = 0;
};

}  // namespace plait
