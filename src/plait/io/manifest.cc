// manifest.json of a checkpoint: reading and writing (checkpoint.h).
#include <algorithm>
#include <limits>
#include <set>

#include "plait/base/digest.h"
#include "plait/io/checkpoint.h"
#include "plait/io/json.h"
#include "plait/io/safetensors.h"

namespace plait {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr const char* kFormat = "plait checkpoint";
constexpr int64_t kVersion = 1;
constexpr int kMaxDepth = 64;
// Objects keep their order by linear search, so lists of many are arrays.
constexpr size_t kMaxMembers = 10'000, kMaxFiles = 100'000, kMaxDims = 8;

std::string shown(const ordered_json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

// Fields of one object, each asked for once, with errors that say where.
class Fields {
 public:
  Fields(const ordered_json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("{}: found {}, expected a JSON object", where_, shown(object));
  }
  const ordered_json& any(const char* name) const {
    if (!object_.contains(name)) fail("{}: {} is missing", where_, name);
    return object_[name];
  }
  int64_t count(const char* name) const { return whole(any(name), name); }
  int64_t whole(const ordered_json& value, const char* name) const {
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail("{}: {} is {}, expected a whole number from 0 to 2^63-1", where_, name, shown(value));
    return value.get<int64_t>();
  }
  std::string text(const char* name) const {
    const ordered_json& value = any(name);
    if (!value.is_string()) fail("{}: {} is {}, expected a string", where_, name, shown(value));
    return value.get<std::string>();
  }
  const ordered_json& array(const char* name) const {
    const ordered_json& value = any(name);
    if (!value.is_array()) fail("{}: {} is {}, expected an array", where_, name, shown(value));
    return value;
  }

 private:
  const ordered_json& object_;
  std::string where_;
};

bool is_hexadecimal(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

ManifestFile file_of(const ordered_json& value, const std::string& source) {
  const Fields fields(value, source + " file");
  ManifestFile file;
  file.name = fields.text("name");
  const auto fit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  if (file.name.empty() || file.name.front() == '.' ||
      !std::all_of(file.name.begin(), file.name.end(), fit))
    fail("{} file: name is {}, expected a file beside the manifest", source, shown(file.name));
  file.bytes = fields.count("bytes");
  file.checksum = fields.text("xxh3_128");
  if (!is_hexadecimal(file.checksum))
    fail("{} file '{}': xxh3_128 is {}, expected 32 hexadecimal digits", source, file.name,
         shown(file.checksum));
  return file;
}

ManifestTensor tensor_of(const ordered_json& value, const std::string& where, size_t files) {
  const Fields fields(value, where);
  ManifestTensor tensor;
  try {
    tensor.dtype = parse_stored_dtype(fields.text("dtype"));
    for (const ordered_json& d : fields.array("shape"))
      tensor.dims.push_back(fields.whole(d, "shape"));
    if (tensor.dims.size() > kMaxDims)
      fail("{} dimensions, expected at most {}", tensor.dims.size(), kMaxDims);
    int64_t elements = 1;
    for (const int64_t d : tensor.dims) elements = checked_mul(elements, d);
    dtype_bytes(tensor.dtype, elements);
  } catch (const Error& e) {
    fail("{}: {}", where, e.what());
  }
  const int64_t file = fields.count("file");
  if (file >= static_cast<int64_t>(files))
    fail("{}: file {}, expected one of {}", where, file, files);
  tensor.file = static_cast<size_t>(file);
  return tensor;
}

std::string digest_of(const ordered_json& object) {
  Digest128 digest;
  try {
    const std::string text = object.dump();
    digest.add(text.data(), text.size());
  } catch (const json::exception& e) {
    fail("a checkpoint's manifest cannot be written as JSON: {}", e.what());
  }
  return digest.text();
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& source) {
  ordered_json object = parse_ordered_json(text, source, kMaxDepth, kMaxMembers);
  const Fields fields(object, source);
  if (fields.any("format") != kFormat)
    fail("{}: format is {}, expected \"{}\"", source, shown(fields.any("format")), kFormat);
  if (fields.count("version") != kVersion)
    fail("{}: version {}, expected {}; another plait wrote it", source, fields.count("version"),
         kVersion);
  Manifest m;
  m.checksum = fields.text("xxh3_128");
  m.step = fields.count("step");
  m.saved = fields.text("saved");
  m.trainer = fields.any("trainer");
  if (fields.array("files").size() > kMaxFiles)
    fail("{}: {} files, expected at most {}", source, fields.array("files").size(), kMaxFiles);
  std::set<std::string> names;
  for (const ordered_json& f : fields.array("files")) {
    m.files.push_back(file_of(f, source));
    if (!names.insert(m.files.back().name).second)
      fail("{}: file '{}' stands twice", source, m.files.back().name);
  }
  for (const ordered_json& t : fields.array("tensors")) {
    const std::string name = Fields(t, source + " tensor").text("name");
    const std::string where = fmt::format("{} tensor {}", source, shown(name));
    if (const auto fault = tensor_name_fault(name); !fault.empty())
      fail("{}: the name {}", where, fault);
    if (!m.tensors.emplace(name, tensor_of(t, where, m.files.size())).second)
      fail("{}: stands twice", where);
  }
  object.erase("xxh3_128");
  m.found_checksum = digest_of(object);
  return m;
}

std::string print_manifest(const Manifest& m) {
  ordered_json object;
  object["format"] = kFormat;
  object["version"] = kVersion;
  object["step"] = m.step;
  object["saved"] = m.saved;
  object["trainer"] = m.trainer;
  object["files"] = ordered_json::array();
  for (const ManifestFile& f : m.files)
    object["files"].push_back({{"name", f.name}, {"bytes", f.bytes}, {"xxh3_128", f.checksum}});
  object["tensors"] = ordered_json::array();
  for (const auto& [name, t] : m.tensors)
    object["tensors"].push_back(
        {{"name", name}, {"dtype", info(t.dtype).name}, {"shape", t.dims}, {"file", t.file}});
  object["xxh3_128"] = digest_of(object);
  return object.dump(1) + "\n";
}

}  // namespace plait
