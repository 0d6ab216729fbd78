// Text files from front to back, in bounded memory: bytes (unpacked if gzip or zstd), lines, and
// documents in pieces.
//
//   LineReader lines("chat.jsonl.zst");
//   for (std::string line; lines.next(line);) use(line, lines.number());
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "plait/base/digest.h"
#include "plait/io/files.h"

namespace plait {

class Unpacker;  // gzip, zstd

// The bytes of a file; those of a packed one (told by how it opens) unpacked.
class ByteStream {
 public:
  explicit ByteStream(const std::string& path);
  ~ByteStream();
  size_t read(char* data, size_t bytes);  // 0: the end
  const std::string& path() const { return file_.path(); }
  int64_t size() const { return file_.size(); }       // of the file, packed
  int64_t consumed() const { return position_; }      // bytes of the file
  std::string digest() const { return sum_.text(); }  // of those

 private:
  size_t read_file(char* data, size_t bytes);
  InputFile file_;
  int64_t position_ = 0;
  Digest128 sum_;
  std::unique_ptr<Unpacker> unpacker_;
  std::string packed_;  // read, and not yet unpacked
};

class LineReader {
 public:
  explicit LineReader(const std::string& path) : bytes_(path) {}
  // The next line without its end ("\n" or "\r\n"); false at the end of the file. A byte-order
  // mark at the start of the file is left out.
  bool next(std::string& line);
  int64_t number() const { return number_; }  // of the line read last, from 1
  const ByteStream& bytes() const { return bytes_; }

 private:
  ByteStream bytes_;
  std::string buffer_;
  size_t at_ = 0;
  bool end_ = false;
  int64_t number_ = 0;
};

// Documents of a text file: all of it, or the parts between separators. A document longer than
// `limit` bytes comes in several pieces, cut where pre-tokenizers cut as well: before the white
// space between two ASCII letters; only without such a place between any two characters.
class DocumentReader {
 public:
  DocumentReader(const std::string& path, std::string separator, size_t limit);
  struct TextPiece {
    std::string text;
    bool first = true, last = true;  // of its document
    int64_t line = 1, offset = 0;    // where it begins in the (unpacked) file
  };
  bool next(TextPiece& piece);  // documents of white space only are left out
  const ByteStream& bytes() const { return bytes_; }

 private:
  bool raw_next(TextPiece& piece);
  void fill(size_t wanted);
  ByteStream bytes_;
  std::string separator_;
  size_t limit_;
  std::string buffer_;
  size_t at_ = 0;  // in buffer_: what comes next
  bool end_ = false, inside_ = false;
  int64_t line_ = 1, offset_ = 0;
};

// Where to cut a text that is longer than `limit` bytes; 1 to limit.
size_t cut_position(std::string_view text, size_t limit);

}  // namespace plait
