#include "plait/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "plait/io/json.h"

namespace plait {

static_assert(std::endian::native == std::endian::little, "tensors are copied as they lie");

std::string_view tensor_name_fault(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name == "__metadata__") return "is reserved";
  if (name.front() == '/') return "begins with '/'";
  if (name.find("..") != std::string_view::npos) return "contains '..'";
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(name.begin(), name.end(), control)) return "contains a control character";
  return {};
}

namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr size_t kMaxTensors = 100'000;
constexpr size_t kMaxDims = 8;
constexpr int kMaxDepth = 3;  // header, tensor, shape
constexpr std::array<Dtype, 5> kSupported = {Dtype::f32, Dtype::f64, Dtype::i32, Dtype::bf16,
                                             Dtype::f16};

// Types that a file may hold and that are never read: such tensors can only be skipped by name.
struct OtherType {
  std::string_view name;
  int64_t bits;  // of one element
};
constexpr OtherType kOthers[] = {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},
                                 {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"U8", 8},
                                 {"I8", 8},      {"U16", 16},    {"I16", 16},    {"U32", 32},
                                 {"U64", 64},    {"I64", 64},    {"C64", 64}};

// Words for names that may hold anything.
std::string shown(const json& value) {
  std::string text = value.dump();
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

const OtherType* other_type(std::string_view name) {
  for (const OtherType& t : kOthers)
    if (t.name == name) return &t;
  return nullptr;
}

void set_type(SafetensorsEntry& entry, const json& value, const std::string& where) {
  if (!value.is_string()) fail("{}: dtype is {}, expected a string", where, shown(value));
  entry.type = value.get<std::string>();
  for (const Dtype dtype : kSupported)
    if (info(dtype).safetensors_name == entry.type) entry.dtype = dtype;
  if (!entry.dtype && other_type(entry.type) == nullptr)
    fail("{}: unknown element type {}, expected F64, F32, BF16, F16 or I32", where, shown(value));
}

int64_t bytes_of(const SafetensorsEntry& entry) {
  int64_t elements = 1;
  for (const int64_t d : entry.dims) elements = checked_mul(elements, d);
  if (entry.dtype) return dtype_bytes(*entry.dtype, elements);
  const int64_t bits = checked_mul(elements, other_type(entry.type)->bits);
  if (bits % 8 != 0) fail("{} bits; needs whole bytes", bits);
  return bits / 8;
}

std::vector<int64_t> integers_of(const json& value, const std::string& where,
                                 std::string_view field) {
  if (!value.is_array()) fail("{}: {} is {}, expected an array", where, field, shown(value));
  std::vector<int64_t> result;
  for (const json& item : value) {
    if (!item.is_number_unsigned() ||
        item.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail("{}: {} holds {}, expected integers from 0 to 2^63-1", where, field, shown(item));
    result.push_back(item.get<int64_t>());
  }
  return result;
}

SafetensorsEntry entry_of(const std::string& path, const std::string& name, const json& value) {
  const std::string where = fmt::format("'{}' tensor {}", path, shown(json(name)));
  if (const auto fault = tensor_name_fault(name); !fault.empty())
    fail("{}: the name {}", where, fault);
  if (!value.is_object()) fail("{}: found {}, expected a JSON object", where, shown(value));
  for (const char* field : {"dtype", "shape", "data_offsets"})
    if (!value.contains(field)) fail("{}: {} is missing", where, field);
  if (value.size() != 3) fail("{}: more fields than dtype, shape and data_offsets", where);

  SafetensorsEntry entry;
  entry.name = name;
  set_type(entry, value["dtype"], where);
  entry.dims = integers_of(value["shape"], where, "shape");
  if (entry.dims.size() > kMaxDims)
    fail("{}: {} dimensions, expected at most {}", where, entry.dims.size(), kMaxDims);
  const auto offsets = integers_of(value["data_offsets"], where, "data_offsets");
  if (offsets.size() != 2) fail("{}: {} data_offsets, expected 2", where, offsets.size());
  entry.begin = offsets[0];
  entry.end = offsets[1];
  if (entry.begin > entry.end)
    fail("{}: begins at {} and ends before, at {}", where, entry.begin, entry.end);

  int64_t bytes = 0;
  try {
    bytes = bytes_of(entry);
  } catch (const Error& e) {
    fail("{}: shape [{}]: {}", where, fmt::join(entry.dims, ", "), e.what());
  }
  if (bytes != entry.end - entry.begin)
    fail("{}: {} bytes of data, expected {} for {} [{}]", where, entry.end - entry.begin, bytes,
         entry.type, fmt::join(entry.dims, ", "));
  return entry;
}

SafetensorsMetadata metadata_of(const std::string& path, const json& value) {
  if (!value.is_object())
    fail("'{}': __metadata__ is {}, expected a JSON object", path, shown(value));
  SafetensorsMetadata result;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      fail("'{}': __metadata__ {} is {}, expected a string", path, shown(json(key)), shown(text));
    result[key] = text.get<std::string>();
  }
  return result;
}

std::string read_header(const InputFile& file, Digest128& digest) {
  if (file.size() < 8)
    fail("'{}': {} bytes, expected at least 8; this is no safetensors file", file.path(),
         file.size());
  uint64_t length = 0;
  file.read(0, &length, 8);
  if (length > kMaxHeaderBytes)
    fail("'{}': header of {} bytes, expected at most {}; this is no safetensors file", file.path(),
         length, kMaxHeaderBytes);
  if (static_cast<int64_t>(length) > file.size() - 8)
    fail("'{}': header of {} bytes in a file of {}; the file is cut short", file.path(), length,
         file.size());
  std::string header(length, '\0');
  file.read(8, header.data(), static_cast<int64_t>(length));
  digest.add(&length, 8);
  digest.add(header.data(), header.size());
  if (header.empty() || header.front() != '{')
    fail("'{}': the header does not begin with '{{'; this is no safetensors file", file.path());
  return header;
}

// The tensors must fill the data from first to last byte.
void check_contiguous(const std::string& path, const std::vector<SafetensorsEntry>& sorted,
                      int64_t data_bytes) {
  int64_t end = 0;
  for (const SafetensorsEntry& e : sorted) {
    if (e.begin != end)
      fail("'{}' tensor '{}': begins at byte {}, expected {}: {}", path, e.name, e.begin, end,
           e.begin > end ? "there is a hole before it" : "it overlaps the tensor before it");
    end = e.end;
  }
  if (end != data_bytes)
    fail("'{}': the tensors take {} bytes and the file holds {}; {}", path, end, data_bytes,
         end > data_bytes ? "the file is cut short" : "there are bytes after the last tensor");
}

// The header, with the length before it.
std::string header_of(const std::string& path, const std::vector<SafetensorsSpec>& tensors,
                      const SafetensorsMetadata& metadata) {
  if (tensors.size() > kMaxTensors)
    fail("'{}': {} tensors, expected at most {}", path, tensors.size(), kMaxTensors);
  std::string header = "{";
  try {
    if (!metadata.empty()) header += "\"__metadata__\":" + json(metadata).dump() + ",";
    int64_t offset = 0;
    std::set<std::string_view> names;
    for (const SafetensorsSpec& t : tensors) {
      const std::string key = json(t.name).dump();  // throws when it is not UTF-8
      if (const auto fault = tensor_name_fault(t.name); !fault.empty())
        fail("'{}' tensor {}: the name {}", path, key, fault);
      if (!names.insert(t.name).second) fail("'{}' tensor '{}': written twice", path, t.name);
      int64_t elements = 1;
      for (const int64_t d : t.dims) elements = checked_mul(elements, d);
      const int64_t end = checked_add(offset, dtype_bytes(t.dtype, elements));
      header += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)", key,
                            info(t.dtype).safetensors_name, fmt::join(t.dims, ","), offset, end);
      offset = end;
    }
  } catch (const json::exception& e) {
    fail("'{}': a name is not UTF-8: {}", path, e.what());
  }
  if (header.back() == ',') header.pop_back();
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeaderBytes)
    fail("'{}': header of {} bytes, expected at most {}", path, header.size(), kMaxHeaderBytes);
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const std::string text = read_header(file_, head_);
  data_start_ = 8 + static_cast<int64_t>(text.size());
  const json header =
      parse_json(text, fmt::format("'{}' header", path), kMaxDepth, kMaxTensors + 1);
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__")
      metadata_ = metadata_of(path, value);
    else
      entries_.push_back(entry_of(path, name, value));
  }
  if (entries_.size() > kMaxTensors)
    fail("'{}': {} tensors, expected at most {}", path, entries_.size(), kMaxTensors);
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_contiguous(path, entries_, file_.size() - data_start_);
  for (size_t i = 0; i < entries_.size(); ++i) by_name_[entries_[i].name] = i;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &entries_[it->second];
}

HostTensor SafetensorsFile::read(const SafetensorsEntry& entry) const {
  if (!entry.dtype)
    fail("'{}' tensor '{}': element type {} is not supported; convert the tensor to F32", path(),
         entry.name, entry.type);
  HostTensor tensor(*entry.dtype, entry.dims);
  file_.read(data_start_ + entry.begin, tensor.data.data(), entry.end - entry.begin);
  return tensor;
}

HostTensor SafetensorsFile::read(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) fail("'{}': there is no tensor '{}'", path(), name);
  return read(*entry);
}

HostTensors SafetensorsFile::read_all(Digest128* digest) const {
  HostTensors all;
  if (digest != nullptr) *digest = head_;
  for (const SafetensorsEntry& entry : entries_) {  // in file order, without gaps
    HostTensor& tensor = all[entry.name] = read(entry);
    if (digest != nullptr) digest->add(tensor.data.data(), tensor.data.size());
  }
  return all;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsSpec> tensors,
                                     const SafetensorsMetadata& metadata)
    : SafetensorsWriter(path, header_of(path, tensors, metadata), std::move(tensors)) {}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::string& header,
                                     std::vector<SafetensorsSpec>&& tensors)
    : tensors_(std::move(tensors)), file_(path) {
  file_.write(header.data(), header.size());
}

void SafetensorsWriter::write(const HostTensor& tensor) {
  PLAIT_CHECK(next_ < tensors_.size(), "more tensors than stated");
  const SafetensorsSpec& spec = tensors_[next_++];
  PLAIT_CHECK(tensor.dtype == spec.dtype && tensor.dims == spec.dims, "tensor '{}'", spec.name);
  PLAIT_CHECK(
      static_cast<int64_t>(tensor.data.size()) == dtype_bytes(tensor.dtype, tensor.elements()),
      "tensor '{}'", spec.name);
  file_.write(tensor.data.data(), tensor.data.size());
}

void SafetensorsWriter::commit() {
  PLAIT_CHECK(next_ == tensors_.size(), "{} of {} tensors were written", next_, tensors_.size());
  file_.commit();
}

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, const HostTensor*>>& tensors,
                       const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor->dtype, tensor->dims});
  SafetensorsWriter writer(path, std::move(specs), metadata);
  for (const auto& [name, tensor] : tensors) writer.write(*tensor);
  writer.commit();
}

}  // namespace plait
