#include "plait/io/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <set>

#include "plait/base/error.h"
#include "plait/io/files.h"
#include "plait/io/safetensors.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

constexpr const char* kManifest = "manifest.json";
constexpr int64_t kMaxManifestBytes = 1'000'000'000;

std::string name_of(int64_t step) { return fmt::format("step-{:08}", step); }

// The step of "step-00000100"; nothing for other names, among them other spellings.
std::optional<int64_t> step_of(const std::string& name) {
  constexpr std::string_view kBegin = "step-";
  if (name.rfind(kBegin, 0) != 0) return {};
  int64_t step = 0;
  const char* last = name.data() + name.size();
  const auto r = std::from_chars(name.data() + kBegin.size(), last, step);
  if (r.ec != std::errc() || r.ptr != last || step < 0 || name_of(step) != name) return {};
  return step;
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = (fs::path(folder) / kManifest).string();
  Manifest m = parse_manifest(read_text(path, kMaxManifestBytes), "'" + path + "'");
  if (m.checksum != m.found_checksum)
    fail("'{}': checksum {}, expected {}; the file is damaged", path, m.found_checksum, m.checksum);
  return m;
}

// Throws unless the folder is what its manifest says, as far as names and sizes go.
Manifest complete_manifest(const std::string& folder, int64_t step) {
  if (!is_folder(folder)) fail("'{}': there is no such checkpoint", folder);
  Manifest m = read_manifest(folder);
  if (m.step != step) fail("'{}': the manifest is of step {}", folder, m.step);
  for (const ManifestFile& file : m.files) {
    const InputFile found((fs::path(folder) / file.name).string());
    if (found.size() != file.bytes)
      fail("'{}': {} bytes, expected {}; the file is damaged", found.path(), found.size(),
           file.bytes);
  }
  return m;
}

[[noreturn]] void wrong_checksum(const std::string& path, const std::string& found,
                                 const std::string& expected) {
  fail("'{}': checksum {}, expected {}; the file is damaged", path, found, expected);
}

// The tensors of one file, checked: the bytes that were hashed are the bytes that are returned.
HostTensors read_states(const std::string& path, const ManifestFile& file) {
  Digest128 digest;
  HostTensors tensors;
  try {
    tensors = SafetensorsFile(path).read_all(&digest);
  } catch (const Error&) {  // most likely because it is damaged: say that
    const std::string found = file_digest(InputFile(path));
    if (found != file.checksum) wrong_checksum(path, found, file.checksum);
    throw;
  }
  if (digest.text() != file.checksum) wrong_checksum(path, digest.text(), file.checksum);
  return tensors;
}

HostTensors read_all_states(const std::string& folder, const Manifest& m) {
  HostTensors all;
  for (size_t i = 0; i < m.files.size(); ++i) {
    const std::string path = (fs::path(folder) / m.files[i].name).string();
    for (auto& [name, tensor] : read_states(path, m.files[i])) {
      const auto it = m.tensors.find(name);
      if (it == m.tensors.end() || it->second.file != i || it->second.dtype != tensor.dtype ||
          it->second.dims != tensor.dims)
        fail("'{}' tensor '{}': {} [{}], and the manifest says otherwise", path, name,
             info(tensor.dtype).name, fmt::join(tensor.dims, ", "));
      all[name] = std::move(tensor);
    }
  }
  for (const auto& [name, t] : m.tensors)
    if (all.count(name) == 0)
      fail("'{}': tensor '{}' is in no file, though the manifest lists it", folder, name);
  return all;
}

std::map<std::string, StateGroup> groups_of(const Manifest& m) {
  std::map<std::string, StateGroup> groups;
  for (const auto& [name, t] : m.tensors) {
    StateGroup& g = groups[name.substr(0, name.find('/'))];
    int64_t elements = 1;
    for (const int64_t d : t.dims) elements *= d;  // checked when it was parsed
    ++g.count;
    g.elements = checked_add(g.elements, elements);
    g.bytes = checked_add(g.bytes, dtype_bytes(t.dtype, elements));
    const std::string dtype(info(t.dtype).name);
    if (std::find(g.dtypes.begin(), g.dtypes.end(), dtype) == g.dtypes.end())
      g.dtypes.push_back(dtype);
  }
  return groups;
}

int64_t bytes_in(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto size = entry.file_size(error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

// ---- writing ------------------------------------------------------------------------------

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

using Named = std::pair<std::string, const HostTensor*>;

// In order of names, each file as full as it may be. At least one file, if only an empty one.
std::vector<std::vector<Named>> into_files(const HostTensors& tensors, int64_t max_bytes) {
  std::vector<std::vector<Named>> files(1);
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto more = static_cast<int64_t>(tensor.data.size());
    if (!files.back().empty() && bytes + more > max_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += more;
    files.back().emplace_back(name, &tensor);
  }
  return files;
}

void write_checkpoint(const std::string& folder, Manifest m, const HostTensors& tensors,
                      int64_t max_file_bytes) {
  const auto files = into_files(tensors, max_file_bytes);
  for (size_t i = 0; i < files.size(); ++i) {
    ManifestFile file;
    file.name = fmt::format("states-{:05}-of-{:05}.safetensors", i + 1, files.size());
    std::vector<SafetensorsSpec> specs;
    for (const auto& [name, tensor] : files[i]) {
      specs.push_back({name, tensor->dtype, tensor->dims});
      m.tensors[name] = {tensor->dtype, tensor->dims, i};
    }
    SafetensorsWriter writer((fs::path(folder) / file.name).string(), std::move(specs));
    for (const auto& [name, tensor] : files[i]) writer.write(*tensor);
    writer.commit();
    file.bytes = writer.file().bytes();
    file.checksum = writer.file().digest().text();
    m.files.push_back(file);
  }
  const std::string text = print_manifest(m);
  // What cannot be read back must not be noticed when it is needed.
  if (parse_manifest(text, "the manifest").trainer != m.trainer)
    fail("the trainer's state changes when it is written as JSON; NaN and infinities cannot");
  write_text((fs::path(folder) / kManifest).string(), text);
}

}  // namespace

// ---- CheckpointReader ---------------------------------------------------------------------

CheckpointReader::CheckpointReader(std::string folder) : folder_(std::move(folder)) {}

std::string CheckpointReader::path_of(int64_t step) const {
  return (fs::path(folder_) / name_of(step)).string();
}

std::vector<int64_t> CheckpointReader::all_steps() const {
  std::vector<int64_t> result;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error))
    if (const auto step = step_of(it->path().filename().string())) result.push_back(*step);
  if (error && file_exists(folder_)) fail("cannot read folder '{}': {}", folder_, error.message());
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<int64_t> CheckpointReader::steps() const {
  std::vector<int64_t> result;
  for (const int64_t step : all_steps()) {
    try {
      complete_manifest(path_of(step), step);
      result.push_back(step);
    } catch (const Error&) {  // not complete: inspect() says why
    }
  }
  return result;
}

Checkpoint CheckpointReader::load(int64_t step) const {
  const std::string folder = path_of(step);
  Manifest m = complete_manifest(folder, step);
  return {step, std::move(m.trainer), read_all_states(folder, m)};
}

std::optional<Checkpoint> CheckpointReader::load_latest(std::vector<std::string>* notes) const {
  std::vector<int64_t> all = all_steps();
  std::reverse(all.begin(), all.end());
  for (const int64_t step : all) {
    try {
      return load(step);
    } catch (const Error& e) {
      if (notes != nullptr)
        notes->push_back(fmt::format("the checkpoint of step {} is left out: {}", step, e.what()));
    }
  }
  return {};
}

CheckpointInfo CheckpointReader::inspect(int64_t step, bool verify) const {
  CheckpointInfo result;
  result.step = step;
  result.folder = path_of(step);
  result.bytes = bytes_in(result.folder);
  try {
    result.manifest = complete_manifest(result.folder, step);
    result.groups = groups_of(result.manifest);
    if (verify) read_all_states(result.folder, result.manifest);
  } catch (const Error& e) {
    result.damage = e.what();
  }
  return result;
}

// ---- CheckpointStore ----------------------------------------------------------------------

void CheckpointStore::save(int64_t step, const nlohmann::ordered_json& trainer,
                           const HostTensors& tensors) {
  if (step < 0) fail("cannot save a checkpoint of step {}; needs at least 0", step);
  Manifest m;
  m.step = step;
  m.saved = now_utc();
  m.trainer = trainer;
  const std::string target = path_of(step), fresh = path_beside(target);
  std::error_code error;
  if (!fs::create_directory(fresh, error))
    fail("cannot create folder '{}': {}", fresh, error.message());
  try {
    write_checkpoint(fresh, std::move(m), tensors, max_file_bytes_);
    replace_folder(fresh, target);
  } catch (const std::exception& e) {
    fs::remove_all(fresh, error);
    fail("the checkpoint of step {} was not saved: {}", step, e.what());
  }
  remove_old(step);
}

void CheckpointStore::remove_old(int64_t saved) {
  if (keep_last_ == 0) return;
  const std::vector<int64_t> complete = steps();
  const auto keep = static_cast<size_t>(keep_last_);
  if (complete.size() <= keep) return;
  const int64_t first = complete[complete.size() - keep];
  for (const int64_t step : all_steps())
    if (step < first && step != saved) remove(step);
}

void CheckpointStore::discard_after(int64_t step) {
  std::vector<int64_t> all = all_steps();
  std::reverse(all.begin(), all.end());  // should it be cut short, the earlier ones are there
  for (const int64_t later : all)
    if (later > step) remove(later);
}

// First the name goes, then the content: half a checkpoint never stands under its name.
void CheckpointStore::remove(int64_t step) {
  const std::string hidden = path_beside(path_of(step));
  move_synced(path_of(step), hidden);
  std::error_code error;
  fs::remove_all(hidden, error);
  if (error) fail("cannot remove '{}': {}", hidden, error.message());
}

}  // namespace plait
