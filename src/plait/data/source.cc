#include "plait/data/source.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "plait/base/error.h"
#include "plait/data/megatron.h"
#include "plait/data/streams.h"
#include "plait/io/json.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxMembers = 1 << 16;
constexpr size_t kMaxFiles = 1 << 20;

std::vector<std::string> files_in_folder(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it->path().filename().string().starts_with('.')) {
      if (it->is_directory(error)) it.disable_recursion_pending();
      continue;
    }
    if (it->is_regular_file(error)) paths.push_back(it->path().string());
    if (paths.size() > kMaxFiles) fail("'{}': more than {} files", folder, kMaxFiles);
  }
  if (error) fail("cannot read folder '{}': {}", folder, error.message());
  return paths;
}

bool is_pattern(const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos && !file_exists(path);
}

std::vector<std::string> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> paths;
  for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i)
    if (!is_folder(found.gl_pathv[i])) paths.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (result != 0 && result != GLOB_NOMATCH) fail("cannot read what '{}' names", pattern);
  return paths;
}

bool has_ending(std::string path, std::initializer_list<std::string_view> endings) {
  for (const std::string_view packed : {".gz", ".zst"})
    if (path.ends_with(packed)) path.resize(path.size() - packed.size());
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view e) { return path.ends_with(e); });
}

// The first line that is not blank, at most; nullopt: none. Binary files have long lines.
std::optional<std::pair<std::string, int64_t>> first_line(const std::string& path) {
  LineReader lines(path);
  for (std::string line; lines.next(line);)
    if (!is_blank(line)) return std::pair(line, lines.number());
  return std::nullopt;
}

std::optional<Shape> shape_of_line(const std::string& line) {
  if (line.find('{') != line.find_first_not_of(" \t")) return std::nullopt;
  try {
    return shape_of(parse_record(line));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Does the file open like JSON lines? Reads little of it, whatever it is.
bool opens_as_json(const std::string& path) {
  ByteStream bytes(path);
  std::string start(4096, ' ');
  start.resize(bytes.read(start.data(), start.size()));
  const size_t at = start.find_first_not_of("\xef\xbb\xbf \t\r\n");
  return at != std::string::npos && start[at] == '{';
}

void detect(SourceFiles& files, const std::string& format) {
  const std::string& first = files.paths.front();
  bool jsonl = format == "jsonl";
  std::string how = "as asked";
  if (format == "auto") {
    jsonl = has_ending(first, {".jsonl", ".ndjson", ".json"});
    how = jsonl ? "from its name" : "from its first line";
    if (!jsonl && opens_as_json(first))
      if (const auto line = first_line(first)) jsonl = shape_of_line(line->first).has_value();
  }
  files.format = jsonl ? Format::jsonl : Format::text;
  if (jsonl) {
    const auto line = first_line(first);
    if (!line) fail("'{}': no records, only blank lines", first);
    try {
      files.shape = shape_of(parse_record(line->first));
    } catch (const Error& e) {
      fail("{}:{}: {}", first, line->second, e.what());
    }
  }
  files.detected = jsonl ? fmt::format("jsonl ({}), {}", shape_name(files.shape), how)
                         : fmt::format("text, {}", how);
}

void drop_empty(SourceFiles& files) {
  const size_t all = files.paths.size();
  std::erase_if(files.paths, [](const std::string& p) { return InputFile(p).size() == 0; });
  if (files.paths.empty())
    fail("'{}' {}", files.root, all == 1 ? "is empty" : "holds empty files only");
  files.empty_files = static_cast<int64_t>(all - files.paths.size());
}

bool is_megatron(const std::string& path, const std::string& format) {
  if (format == "megatron") return true;
  if (format != "auto") return false;
  return megatron_prefix(path) != path || (!file_exists(path) && file_exists(path + ".idx"));
}

}  // namespace

std::string_view format_name(Format format) {
  switch (format) {
    case Format::text:
      return "text";
    case Format::jsonl:
      return "jsonl";
    default:
      return "megatron";
  }
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

Json parse_record(const std::string& line) {
  if (const auto at = find_invalid_utf8(line))
    fail("byte {:#04x} at offset {} of the line is not valid UTF-8",
         static_cast<unsigned char>(line[*at]), *at);
  parse_json(line, "line", kMaxDepth, kMaxMembers);  // strict, but sorts the keys
  return Json::parse(line);
}

std::string SourceFiles::name(size_t file) const {
  const fs::path path(paths[file]);
  return is_folder(root) ? path.lexically_relative(root).string() : path.filename().string();
}

SourceFiles find_files(const DataSource& source) {
  SourceFiles files;
  const std::string& path = source.path;
  files.root = path;
  if (path.empty()) fail("a data source without a path");
  for (const std::string_view known : {"auto", "text", "jsonl", "megatron", ""}) {
    if (known.empty())
      fail("'{}': unknown format '{}'; known are auto, text, jsonl, megatron", path, source.format);
    if (known == source.format) break;
  }
  if (is_megatron(path, source.format)) {
    files.format = Format::megatron;
    files.paths = {megatron_prefix(path) + ".idx", megatron_prefix(path) + ".bin"};
    files.detected = "megatron";
    return files;
  }
  if (is_folder(path))
    files.paths = files_in_folder(path);
  else if (is_pattern(path))
    files.paths = files_of_pattern(path);
  else if (file_exists(path))
    files.paths = {path};
  else
    fail("data '{}' does not exist", path);
  if (files.paths.empty())
    fail("'{}': {}", path, is_folder(path) ? "a folder without files" : "nothing has such a name");
  std::sort(files.paths.begin(), files.paths.end());
  drop_empty(files);
  detect(files, source.format);
  return files;
}

}  // namespace plait
