// The tensors of a model folder: one model.safetensors, or shards that
// model.safetensors.index.json lists, as Hugging Face names them.
//
//   TensorFolder files("llama");
//   for (const std::string& name : files.names()) ...
//   HostTensor norm = files.read("model.norm.weight");  // opens that shard alone
//
// The index is a stranger too: shards outside the folder, missing ones, tensors in another shard
// than the index says are refused by name.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/io/safetensors.h"

namespace plait {

inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kIndexName = "model.safetensors.index.json";

struct ShardIndex {
  std::map<std::string, std::string> shard_of;  // tensor to file
  std::optional<int64_t> total_size;            // bytes of all tensors, where it is stated
};
ShardIndex parse_shard_index(std::string_view text, const std::string& source);

class TensorFolder {
 public:
  explicit TensorFolder(const std::string& folder);
  const std::string& path() const { return path_; }  // the file, or the index
  std::vector<std::string> names() const;            // of all tensors, rising
  bool contains(const std::string& name) const { return shard_of_.count(name) > 0; }
  const SafetensorsEntry& entry(const std::string& name);  // opens its shard; throws when absent
  HostTensor read(const std::string& name);
  std::vector<std::string> opened() const;  // names of the files opened so far
  // Whether the index's own total differs from what the shards hold, in words, or nothing. Some
  // tools write a wrong one; knows nothing until every shard is open.
  std::string size_note() const;

 private:
  const SafetensorsFile& open(const std::string& shard);
  std::string folder_, path_;
  std::map<std::string, std::string> shard_of_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;  // nullptr: not opened yet
  std::optional<int64_t> total_size_;
};

// Writes model.safetensors, or, when the tensors take more than `max_shard_bytes`, shards and their
// index. `value` is called once for each tensor, and gives it with the type and sizes of its spec.
void write_tensor_folder(const std::string& folder, std::vector<SafetensorsSpec> tensors,
                         int64_t max_shard_bytes,
                         const std::function<HostTensor(const SafetensorsSpec&)>& value);

// Files that write_tensor_folder may have written, now or before: what a new model replaces.
bool is_tensor_file(std::string_view name);

}  // namespace plait
