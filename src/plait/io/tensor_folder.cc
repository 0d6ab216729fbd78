#include "plait/io/tensor_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "plait/io/json.h"

namespace plait {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr int64_t kMaxIndexBytes = 100'000'000;
constexpr size_t kMaxNames = 1'000'000;
constexpr int kMaxDepth = 8;
constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

std::string shown(const json& value) {
  const std::string text = value.dump();
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

// Why a shard's name cannot be a file beside the index, or nothing.
std::string_view shard_fault(std::string_view name) {
  constexpr std::string_view kEnding = ".safetensors";
  if (name.size() <= kEnding.size() || name.substr(name.size() - kEnding.size()) != kEnding)
    return "does not end in .safetensors";
  if (name.find_first_of("/\\") != std::string_view::npos) return "is a path, expected a file name";
  if (name.front() == '.') return "begins with '.'";
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(name.begin(), name.end(), control)) return "contains a control character";
  return {};
}

// A whole number, also when a tool wrote it as 1.5e10.
std::optional<int64_t> total_size_of(const json& index, const std::string& source) {
  if (!index.contains("metadata") || index["metadata"].is_null()) return {};
  const json& metadata = index["metadata"];
  if (!metadata.is_object())
    fail("{}: metadata is {}, expected a JSON object", source, shown(metadata));
  if (!metadata.contains("total_size")) return {};
  const json& size = metadata["total_size"];
  const double number = size.is_number() ? size.get<double>() : -1;
  if (!(number >= 0 && number < kExactIntegers && std::floor(number) == number))
    fail("{}: metadata.total_size is {}, expected a count of bytes", source, shown(size));
  return static_cast<int64_t>(number);
}

std::string shard_name(size_t number, size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

int64_t bytes_of(const SafetensorsSpec& t) {
  int64_t elements = 1;
  for (const int64_t d : t.dims) elements = checked_mul(elements, d);
  return dtype_bytes(t.dtype, elements);
}

// In the order given, each shard as full as it may be; a larger tensor has one to itself.
std::vector<std::vector<SafetensorsSpec>> into_shards(std::vector<SafetensorsSpec> tensors,
                                                      int64_t max_shard_bytes) {
  std::vector<std::vector<SafetensorsSpec>> shards(1);
  int64_t bytes = 0;
  for (SafetensorsSpec& t : tensors) {
    const int64_t more = bytes_of(t);
    if (!shards.back().empty() && checked_add(bytes, more) > max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(t));
  }
  return shards;
}

}  // namespace

ShardIndex parse_shard_index(std::string_view text, const std::string& source) {
  const json index = parse_json(text, source, kMaxDepth, kMaxNames);
  if (!index.is_object()) fail("{}: found {}, expected a JSON object", source, shown(index));
  if (!index.contains("weight_map")) fail("{}: weight_map is missing", source);
  const json& map = index["weight_map"];
  if (!map.is_object() || map.empty())
    fail("{}: weight_map is {}, expected names of tensors and their files", source, shown(map));
  ShardIndex result;
  for (const auto& [name, shard] : map.items()) {
    if (const auto fault = tensor_name_fault(name); !fault.empty())
      fail("{}: tensor {}: the name {}", source, shown(json(name)), fault);
    if (!shard.is_string())
      fail("{}: tensor {} is in {}, expected the name of a file", source, shown(json(name)),
           shown(shard));
    const auto& file = shard.get_ref<const std::string&>();
    if (const auto fault = shard_fault(file); !fault.empty())
      fail("{}: tensor {} is in file {}, which {}", source, shown(json(name)), shown(shard), fault);
    result.shard_of.emplace(name, file);
  }
  result.total_size = total_size_of(index, source);
  return result;
}

TensorFolder::TensorFolder(const std::string& folder) : folder_(folder) {
  const fs::path root(folder);
  const std::string single = (root / kWeightsName).string(), index = (root / kIndexName).string();
  const bool sharded = file_exists(index);
  if (sharded && file_exists(single))
    fail("'{}': there are both {} and {}; remove the one that is not meant", folder, kWeightsName,
         kIndexName);
  path_ = sharded ? index : single;
  if (!sharded) {
    if (!file_exists(single) && file_exists((root / "pytorch_model.bin").string()))
      fail("'{}': only pytorch_model.bin is there, which may run code; save it as safetensors",
           folder);
    for (const SafetensorsEntry& e : open(kWeightsName).entries()) shard_of_[e.name] = kWeightsName;
    return;
  }
  ShardIndex parsed = parse_shard_index(read_text(index, kMaxIndexBytes), "'" + index + "'");
  shard_of_ = std::move(parsed.shard_of);
  total_size_ = parsed.total_size;
  for (const auto& [name, shard] : shard_of_) {
    if (files_.count(shard) > 0) continue;
    if (!file_exists((root / shard).string()))
      fail(
          "'{}': there is no file '{}', in which tensor '{}' should be; the download is incomplete",
          index, shard, name);
    files_[shard] = nullptr;
  }
}

std::vector<std::string> TensorFolder::names() const {
  std::vector<std::string> result;
  for (const auto& [name, shard] : shard_of_) result.push_back(name);
  return result;
}

const SafetensorsFile& TensorFolder::open(const std::string& shard) {
  std::unique_ptr<SafetensorsFile>& file = files_[shard];
  if (file != nullptr) return *file;
  file = std::make_unique<SafetensorsFile>((fs::path(folder_) / shard).string());
  if (shard_of_.empty()) return *file;  // the single file: there is no index to compare with
  for (const SafetensorsEntry& e : file->entries()) {
    const auto it = shard_of_.find(e.name);
    if (it == shard_of_.end())
      fail("'{}' tensor '{}': the index does not list it", file->path(), e.name);
    if (it->second != shard)
      fail("'{}' tensor '{}': the index says that it is in '{}'", file->path(), e.name, it->second);
  }
  for (const auto& [name, in] : shard_of_)
    if (in == shard && file->find(name) == nullptr)
      fail("'{}': tensor '{}' is not in it, though the index says so", file->path(), name);
  return *file;
}

const SafetensorsEntry& TensorFolder::entry(const std::string& name) {
  const auto it = shard_of_.find(name);
  if (it == shard_of_.end()) fail("'{}': there is no tensor '{}'", path_, name);
  return *open(it->second).find(name);
}

HostTensor TensorFolder::read(const std::string& name) {
  const SafetensorsEntry& found = entry(name);
  return open(shard_of_.at(name)).read(found.name);
}

std::vector<std::string> TensorFolder::opened() const {
  std::vector<std::string> result;
  for (const auto& [shard, file] : files_)
    if (file != nullptr) result.push_back(shard);
  return result;
}

std::string TensorFolder::size_note() const {
  if (!total_size_) return {};
  int64_t bytes = 0;
  for (const auto& [shard, file] : files_) {
    if (file == nullptr) return {};
    for (const SafetensorsEntry& e : file->entries()) bytes = checked_add(bytes, e.end - e.begin);
  }
  if (bytes == *total_size_) return {};
  return fmt::format("'{}': total_size is {} and the shards hold {} bytes", path_, *total_size_,
                     bytes);
}

void write_tensor_folder(const std::string& folder, std::vector<SafetensorsSpec> tensors,
                         int64_t max_shard_bytes,
                         const std::function<HostTensor(const SafetensorsSpec&)>& value) {
  if (max_shard_bytes < 1) fail("shards of {} bytes; needs at least 1", max_shard_bytes);
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  auto shards = into_shards(std::move(tensors), max_shard_bytes);
  const auto root = fs::path(folder);
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::map<std::string, std::string> shard_of;
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1 ? kWeightsName : shard_name(i + 1, shards.size());
    // Larger elements first, as the reference implementation has it: then all are aligned.
    std::stable_sort(shards[i].begin(), shards[i].end(), [](const auto& a, const auto& b) {
      return info(a.dtype).block_bytes > info(b.dtype).block_bytes;
    });
    SafetensorsWriter writer((root / name).string(), shards[i]);
    for (const SafetensorsSpec& t : shards[i]) {
      writer.write(value(t));
      shard_of[t.name] = name;
      total += bytes_of(t);
    }
    writer.commit();
  }
  if (shards.size() == 1) return;
  for (const auto& [name, shard] : shard_of) map[name] = shard;
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total;
  index["weight_map"] = std::move(map);
  write_text((root / kIndexName).string(), index.dump(2) + "\n");
}

bool is_tensor_file(std::string_view name) {
  if (name == kWeightsName || name == kIndexName) return true;
  // model-00001-of-00002.safetensors
  constexpr std::string_view kBegin = "model-", kMiddle = "-of-", kEnd = ".safetensors";
  const auto take = [&](std::string_view word) {
    const bool there = name.substr(0, word.size()) == word;
    if (there) name.remove_prefix(word.size());
    return there;
  };
  const auto digits = [&] {
    const size_t n = std::min(name.find_first_not_of("0123456789"), name.size());
    name.remove_prefix(n);
    return n >= 5;
  };
  return take(kBegin) && digits() && take(kMiddle) && digits() && name == kEnd;
}

}  // namespace plait
