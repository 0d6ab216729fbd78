// safetensors files (https://github.com/huggingface/safetensors): 8 bytes of little-endian
// header length, a JSON header, and the tensors without gaps.
//
//   const SafetensorsFile file("model.safetensors");
//   HostTensor table = file.read("model.embed_tokens.weight");
//
// A file is a stranger. Everything in the header is checked before anything is allocated for
// it; the header is copied first, so the file cannot change between check and use. All errors
// are thrown as Error and name the file and the tensor.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plait/base/host_tensor.h"
#include "plait/io/files.h"

namespace plait {

using SafetensorsMetadata = std::map<std::string, std::string>;

// Why a name cannot be a tensor's, or nothing. Names may become paths and are printed.
std::string_view tensor_name_fault(std::string_view name);

struct SafetensorsEntry {
  std::string name;
  std::string type;            // in the file's words: "BF16"
  std::optional<Dtype> dtype;  // nothing: known to the format, such as I64, but never read here
  std::vector<int64_t> dims;
  int64_t begin = 0, end = 0;  // bytes, from the end of the header
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // in file order
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const SafetensorsEntry* find(std::string_view name) const;  // nullptr when there is none
  HostTensor read(std::string_view name) const;               // throws for a type without Dtype
  // All tensors; `digest`, when given, becomes that of the whole file as it was read.
  HostTensors read_all(Digest128* digest = nullptr) const;

 private:
  HostTensor read(const SafetensorsEntry& entry) const;
  InputFile file_;
  int64_t data_start_ = 0;
  Digest128 head_;  // of everything before the data
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;
  SafetensorsMetadata metadata_;
};

// What a file will hold, in order; then the tensors themselves, one after the other, so that only
// one need be in memory:
//
//   SafetensorsWriter writer(path, {{"a", Dtype::bf16, {2, 3}}});
//   writer.write(convert(a, Dtype::bf16));
//   writer.commit();  // without it, nothing appears under that name
struct SafetensorsSpec {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> dims;
};

class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsSpec> tensors,
                    const SafetensorsMetadata& metadata = {{"format", "pt"}});
  void write(const HostTensor& tensor);  // the next one
  void commit();                         // throws unless all were written
  const AtomicFile& file() const { return file_; }

 private:
  SafetensorsWriter(const std::string& path, const std::string& header,
                    std::vector<SafetensorsSpec>&& tensors);
  std::vector<SafetensorsSpec> tensors_;
  size_t next_ = 0;
  AtomicFile file_;
};

// Writes the tensors in the given order, atomically. Throws, and leaves nothing behind, on a
// name that the reader would refuse and on any failure of the file system.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, const HostTensor*>>& tensors,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace plait
