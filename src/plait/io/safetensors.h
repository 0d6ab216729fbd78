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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plait/base/host_tensor.h"
#include "plait/io/files.h"

namespace plait {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
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
  HostTensor read(std::string_view name) const;
  HostTensors read_all() const;

 private:
  HostTensor read(const SafetensorsEntry& entry) const;
  InputFile file_;
  int64_t data_start_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;
  SafetensorsMetadata metadata_;
};

// Writes the tensors in the given order, atomically. Throws, and leaves nothing behind, on a
// name that the reader would refuse and on any failure of the file system.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, const HostTensor*>>& tensors,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace plait
