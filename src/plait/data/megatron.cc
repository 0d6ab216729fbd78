#include "plait/data/megatron.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "plait/base/dtype.h"
#include "plait/base/error.h"

namespace plait {

namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
constexpr int64_t kUint16Limit = 65500;

struct Type {
  int code;
  std::string_view name;
  int64_t bytes;
  bool whole;
};
constexpr std::array<Type, 8> kTypes = {{{1, "uint8", 1, true},
                                         {2, "int8", 1, true},
                                         {3, "int16", 2, true},
                                         {4, "int32", 4, true},
                                         {5, "int64", 8, true},
                                         {6, "float64", 8, false},
                                         {7, "float32", 4, false},
                                         {8, "uint16", 2, true}}};

const Type& type_of(int code) { return kTypes[static_cast<size_t>(code - 1)]; }

template <class T>
T load(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

int32_t narrow(int64_t id) {
  return id == static_cast<int32_t>(id) ? static_cast<int32_t>(id) : -1;
}

int32_t load_id(const unsigned char* from, int code) {
  switch (code) {
    case 1:
      return load<uint8_t>(from);
    case 2:
      return load<int8_t>(from);
    case 3:
      return load<int16_t>(from);
    case 4:
      return load<int32_t>(from);
    case 5:
      return narrow(load<int64_t>(from));
    default:
      return load<uint16_t>(from);
  }
}

// Reads an array of the file in parts, so that a lying count costs no memory.
template <class T>
class ArrayReader {
 public:
  ArrayReader(const InputFile& file, int64_t offset, int64_t count)
      : file_(file), offset_(offset), left_(count) {}
  T next() {
    if (at_ == part_.size()) fill();
    return part_[at_++];
  }

 private:
  void fill() {
    part_.resize(static_cast<size_t>(std::min<int64_t>(left_, 1 << 16)));
    const auto bytes = static_cast<int64_t>(part_.size() * sizeof(T));
    file_.read(offset_, part_.data(), bytes);
    offset_ += bytes;
    left_ -= static_cast<int64_t>(part_.size());
    at_ = 0;
  }
  const InputFile& file_;
  int64_t offset_, left_;
  size_t at_ = 0;
  std::vector<T> part_;
};

bool ends_with_file(const std::string& path, std::string_view ending) {
  return path.size() > ending.size() && path.ends_with(ending);
}

}  // namespace

std::string megatron_prefix(const std::string& path) {
  const bool whole = ends_with_file(path, ".bin") || ends_with_file(path, ".idx");
  return whole ? path.substr(0, path.size() - 4) : path;
}

MegatronStore::MegatronStore(const std::string& path) : ids_(megatron_prefix(path) + ".bin") {
  read_index(InputFile(megatron_prefix(path) + ".idx"));
}

std::string_view MegatronStore::type() const { return type_of(code_).name; }

void MegatronStore::read_index(const InputFile& index) {
  const std::string& path = index.path();
  if (index.size() < kHeaderBytes)
    fail("'{}': {} bytes; an index has at least {}", path, index.size(), kHeaderBytes);
  std::array<unsigned char, kHeaderBytes> header;
  index.read(0, header.data(), kHeaderBytes);
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0)
    fail("'{}' does not open with MMIDIDX: no index of Megatron", path);
  const auto version = load<uint64_t>(&header[9]);
  if (version != 1) fail("'{}': version {} of the format; only 1 is known", path, version);
  code_ = header[17];
  if (code_ < 1 || code_ > static_cast<int>(kTypes.size()))
    fail("'{}': type code {}; known are 1 to {}", path, code_, kTypes.size());
  const Type& type = type_of(code_);
  if (!type.whole) fail("'{}': ids are {}; needs a type of whole numbers", path, type.name);

  const auto n = load<uint64_t>(&header[18]), d = load<uint64_t>(&header[26]);
  const auto rest = static_cast<uint64_t>(index.size() - kHeaderBytes);
  if (n > rest / 12 || d > rest / 8 || n * 12 + d * 8 > rest)
    fail("'{}': {} sequences and {} document borders do not fit into {} bytes", path, n, d,
         index.size());
  if (n * 12 + d * 8 != rest)
    fail("'{}': {} bytes, expected {} for {} sequences and {} document borders{}", path,
         index.size(), kHeaderBytes + static_cast<int64_t>(n * 12 + d * 8), n, d,
         n * 13 + d * 8 == rest ? "; multimodal data (a mode for each sequence) is not supported"
                                : "");
  if (d < 1) fail("'{}': no document borders; needs documents + 1", path);

  sequences_ = static_cast<int64_t>(n);
  const auto borders = static_cast<int64_t>(d);
  ArrayReader<int32_t> lengths(index, kHeaderBytes, sequences_);
  ArrayReader<int64_t> pointers(index, kHeaderBytes + 4 * sequences_, sequences_);
  ArrayReader<int64_t> documents(index, kHeaderBytes + 12 * sequences_, borders);
  int64_t tokens = 0, document = 0;
  std::optional<int64_t> border = documents.next();
  if (*border != 0) fail("'{}': the first document begins with sequence {}", path, *border);
  // Documents that begin with sequence s.
  const auto take_borders = [&](int64_t s) {
    while (border && *border == s) {
      offsets_.push_back(tokens);
      ++document;
      border = document < borders ? std::optional<int64_t>(documents.next()) : std::nullopt;
      if (border && (*border < s || *border > sequences_))
        fail("'{}': document {} begins with sequence {}; needs {} to {}", path, document, *border,
             s, sequences_);
    }
  };
  for (int64_t s = 0; s < sequences_; ++s) {
    take_borders(s);
    const int32_t length = lengths.next();
    const int64_t pointer = pointers.next();
    if (length < 0) fail("'{}': sequence {} has {} tokens", path, s, length);
    if (pointer != tokens * type.bytes)
      fail("'{}': sequence {} lies at byte {}; needs {}, where the one before ends", path, s,
           pointer, tokens * type.bytes);
    tokens += length;
    if (tokens > ids_.size() / type.bytes)
      fail("'{}': sequence {} ends at token {}; '{}' has {} bytes of {} a token", path, s, tokens,
           ids_.path(), ids_.size(), type.bytes);
  }
  take_borders(sequences_);
  if (document != borders || offsets_.back() != tokens || border)
    fail("'{}': the last document border is not the number of sequences, {}", path, sequences_);
  if (tokens * type.bytes != ids_.size())
    fail("'{}' has {} bytes, expected {} for {} tokens of its index", ids_.path(), ids_.size(),
         tokens * type.bytes, tokens);
}

void MegatronStore::read(int64_t begin, int64_t end, int32_t* ids, uint8_t* learn) const {
  PLAIT_CHECK(begin >= 0 && begin <= end && end <= tokens(), "tokens {} to {} of {}", begin, end,
              tokens());
  const int64_t width = type_of(code_).bytes;
  std::vector<unsigned char> bytes(static_cast<size_t>((end - begin) * width));
  ids_.read(begin * width, bytes.data(), static_cast<int64_t>(bytes.size()));
  for (int64_t i = 0; i < end - begin; ++i) {
    ids[i] = load_id(bytes.data() + i * width, code_);
    learn[i] = 1;
  }
}

MegatronWriter::MegatronWriter(const std::string& prefix, int64_t vocabulary)
    : prefix_(megatron_prefix(prefix)), vocabulary_(vocabulary), ids_(prefix_ + ".bin") {}

void MegatronWriter::add(std::span<const int32_t> ids) {
  for (const int32_t id : ids)
    if (id < 0 || id >= vocabulary_)
      fail("document {}: id {} is outside the vocabulary of {}", lengths_.size(), id, vocabulary_);
  length_ += static_cast<int64_t>(ids.size());
  if (vocabulary_ >= kUint16Limit) return ids_.write(ids.data(), ids.size() * 4);
  const std::vector<uint16_t> narrow(ids.begin(), ids.end());
  ids_.write(narrow.data(), narrow.size() * 2);
}

void MegatronWriter::end_document() {
  if (length_ > INT32_MAX)
    fail("document {} has {} tokens; Megatron's format allows {}", lengths_.size(), length_,
         INT32_MAX);
  lengths_.push_back(static_cast<int32_t>(length_));
  length_ = 0;
}

void MegatronWriter::commit() {
  const int64_t width = vocabulary_ >= kUint16Limit ? 4 : 2;
  const auto code = static_cast<unsigned char>(width == 4 ? 4 : 8);
  const std::array<uint64_t, 2> counts = {lengths_.size(), lengths_.size() + 1};
  std::vector<int64_t> pointers, borders{0};
  int64_t bytes = 0;
  for (const int32_t n : lengths_) {
    pointers.push_back(bytes);
    borders.push_back(static_cast<int64_t>(pointers.size()));
    bytes += n * width;
  }
  const uint64_t version = 1;
  AtomicFile index(prefix_ + ".idx");
  index.write(kMagic.data(), kMagic.size());
  index.write(&version, 8);
  index.write(&code, 1);
  index.write(counts.data(), 16);
  index.write(lengths_.data(), lengths_.size() * 4);
  index.write(pointers.data(), pointers.size() * 8);
  index.write(borders.data(), borders.size() * 8);
  ids_.commit();
  index.commit();
}

}  // namespace plait
