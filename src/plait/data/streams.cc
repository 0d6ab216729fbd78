#include "plait/data/streams.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "plait/base/error.h"

namespace plait {

namespace {

constexpr size_t kReadBytes = 1 << 18;
constexpr size_t kMaxLineBytes = size_t{1} << 28;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kSpace = " \t\r\n\f\v";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

// ---- unpacking ----------------------------------------------------------------------------

class Unpacker {
 public:
  struct Moved {
    size_t in = 0, out = 0;
  };
  virtual ~Unpacker() = default;
  virtual Moved unpack(std::string_view in, char* out, size_t bytes) = 0;
  virtual bool between_parts() const = 0;  // a file may end here
};

namespace {

class Gunzip final : public Unpacker {
 public:
  explicit Gunzip(const std::string& path) : path_(path) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) fail("'{}': zlib cannot begin", path);
  }
  ~Gunzip() override { inflateEnd(&stream_); }
  Moved unpack(std::string_view in, char* out, size_t bytes) override {
    if (ended_ && !in.empty()) {  // another part follows
      inflateReset(&stream_);
      ended_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(bytes);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      fail("'{}': broken gzip data: {}", path_, stream_.msg != nullptr ? stream_.msg : "unknown");
    ended_ = result == Z_STREAM_END;
    return {in.size() - stream_.avail_in, bytes - stream_.avail_out};
  }
  bool between_parts() const override { return ended_; }

 private:
  std::string path_;
  z_stream stream_{};
  bool ended_ = false;
};

class Unzstd final : public Unpacker {
 public:
  explicit Unzstd(const std::string& path) : path_(path), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) fail("'{}': zstd cannot begin", path);
  }
  ~Unzstd() override { ZSTD_freeDStream(stream_); }
  Moved unpack(std::string_view in, char* out, size_t bytes) override {
    if (in.empty() && ended_) return {};  // else it would begin another frame
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out, bytes, 0};
    const size_t result = ZSTD_decompressStream(stream_, &to, &from);
    if (ZSTD_isError(result) != 0)
      fail("'{}': broken zstd data: {}", path_, ZSTD_getErrorName(result));
    ended_ = result == 0;
    return {from.pos, to.pos};
  }
  bool between_parts() const override { return ended_; }

 private:
  std::string path_;
  ZSTD_DStream* stream_;
  bool ended_ = false;
};

std::unique_ptr<Unpacker> unpacker_for(std::string_view start, const std::string& path) {
  if (start.starts_with("\x1f\x8b")) return std::make_unique<Gunzip>(path);
  if (start.starts_with("\x28\xb5\x2f\xfd")) return std::make_unique<Unzstd>(path);
  for (const std::string_view magic : {"BZh",
                                       "\xfd"
                                       "7zXZ",
                                       "PK\x03\x04"})
    if (start.starts_with(magic))
      fail("'{}' is packed as bzip2, xz or zip; unpack it, or pack it with gzip or zstd", path);
  return nullptr;
}

}  // namespace

// ---- bytes --------------------------------------------------------------------------------

ByteStream::ByteStream(const std::string& path) : file_(path) {
  std::array<char, 6> start{};
  const int64_t n = std::min<int64_t>(file_.size(), start.size());
  file_.read(0, start.data(), n);
  unpacker_ = unpacker_for(std::string_view(start.data(), static_cast<size_t>(n)), path);
}

ByteStream::~ByteStream() = default;

size_t ByteStream::read_file(char* data, size_t bytes) {
  const int64_t n = std::min(static_cast<int64_t>(bytes), file_.size() - position_);
  file_.read(position_, data, n);
  position_ += n;
  sum_.add(data, static_cast<size_t>(n));
  return static_cast<size_t>(n);
}

size_t ByteStream::read(char* data, size_t bytes) {
  if (unpacker_ == nullptr) return read_file(data, bytes);
  for (;;) {
    if (packed_.empty()) {
      packed_.resize(kReadBytes);
      packed_.resize(read_file(packed_.data(), packed_.size()));
    }
    const bool at_end = packed_.empty();
    const Unpacker::Moved moved = unpacker_->unpack(packed_, data, bytes);
    packed_.erase(0, moved.in);
    if (moved.out > 0) return moved.out;
    if (at_end && unpacker_->between_parts()) return 0;
    if (moved.in == 0) fail("'{}': the packed data ends too soon, at byte {}", path(), position_);
  }
}

// ---- lines --------------------------------------------------------------------------------

bool LineReader::next(std::string& line) {
  size_t searched = at_;
  for (;;) {
    const size_t found = buffer_.find('\n', searched);
    if (found != std::string::npos || (end_ && at_ < buffer_.size())) {
      const size_t stop = std::min(found, buffer_.size());
      line.assign(buffer_, at_, stop - at_);
      at_ = std::min(stop + 1, buffer_.size());
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (++number_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
      return true;
    }
    if (end_) return false;
    if (buffer_.size() - at_ > kMaxLineBytes)
      fail("{}:{}: a line of more than {} bytes", bytes_.path(), number_ + 1, kMaxLineBytes);
    buffer_.erase(0, at_);
    at_ = 0;
    const size_t old = searched = buffer_.size();
    buffer_.resize(old + kReadBytes);
    const size_t n = bytes_.read(buffer_.data() + old, kReadBytes);
    buffer_.resize(old + n);
    end_ = n == 0;
  }
}

// ---- documents ----------------------------------------------------------------------------

size_t cut_position(std::string_view text, size_t limit) {
  for (size_t i = limit; i > limit / 2 && i + 1 < text.size(); --i)
    if ((text[i] == ' ' || text[i] == '\n') && is_letter(text[i - 1]) && is_letter(text[i + 1]))
      return i;
  for (size_t i = limit; i > 0 && limit - i < 4; --i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return i;
  return limit;  // no UTF-8
}

DocumentReader::DocumentReader(const std::string& path, std::string separator, size_t limit)
    : bytes_(path), separator_(std::move(separator)), limit_(limit) {
  fill(kByteOrderMark.size());
  if (!buffer_.starts_with(kByteOrderMark)) return;
  at_ = kByteOrderMark.size();
  offset_ = static_cast<int64_t>(kByteOrderMark.size());
}

// At least `wanted` bytes from at_ on, unless the file ends. What was used goes only when twice as
// many are read, so bytes are moved once.
void DocumentReader::fill(size_t wanted) {
  if (end_ || buffer_.size() - at_ >= wanted) return;
  buffer_.erase(0, at_);
  at_ = 0;
  while (!end_ && buffer_.size() < 2 * wanted) {
    const size_t old = buffer_.size();
    buffer_.resize(old + kReadBytes);
    const size_t n = bytes_.read(buffer_.data() + old, buffer_.size() - old);
    buffer_.resize(old + n);
    end_ = n == 0;
  }
}

bool DocumentReader::raw_next(TextPiece& piece) {
  fill(limit_ + separator_.size() + 2);
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  if (rest.empty() && !inside_) return false;
  const size_t found = separator_.empty() ? std::string_view::npos : rest.find(separator_);
  size_t cut = std::min(found, rest.size()), skip = 0;
  piece.first = !inside_;
  piece.last = true;
  if (cut > limit_) {
    cut = cut_position(rest, limit_);
    piece.last = false;
  } else if (found != std::string_view::npos) {
    skip = separator_.size();
  }
  piece.text = rest.substr(0, cut);
  piece.line = line_;
  piece.offset = offset_;
  const std::string_view used = rest.substr(0, cut + skip);
  line_ += std::count(used.begin(), used.end(), '\n');
  offset_ += static_cast<int64_t>(used.size());
  at_ += used.size();
  inside_ = !piece.last;
  return true;
}

bool DocumentReader::next(TextPiece& piece) {
  while (raw_next(piece))
    if (!(piece.first && piece.last) || piece.text.find_first_not_of(kSpace) != std::string::npos)
      return true;
  return false;
}

}  // namespace plait
