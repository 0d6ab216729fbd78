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

constexpr size_t kLookedAt = 1 << 16;
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

// The first line that is not blank; nullopt: none.
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

// What a file holds, as far as its name and its beginning tell.
struct Kind {
  enum What { text, jsonl, json, megatron, binary } what = text;
  Shape shape = Shape::text;  // of jsonl
  bool named = false;         // told from the name
  bool operator==(const Kind& o) const { return what == o.what && shape == o.shape; }

  std::string name() const {
    switch (what) {
      case text:
        return "text";
      case jsonl:
        return fmt::format("jsonl ({})", shape_name(shape));
      case json:
        return "JSON, but no JSON lines";
      case megatron:
        return "Megatron's";
      default:
        return "binary, no text";
    }
  }
};

std::string beginning(const std::string& path) {
  ByteStream bytes(path);
  std::string start(kLookedAt, ' ');
  size_t n = 0;
  while (n < start.size()) {
    const size_t more = bytes.read(start.data() + n, start.size() - n);
    if (more == 0) break;
    n += more;
  }
  start.resize(n);
  return start;
}

// The shape of the first record. Throws Error naming the line.
Shape first_shape(const std::string& path, bool skip_bad_lines) {
  LineReader lines(path);
  std::string bad;
  for (std::string line; lines.next(line);) {
    if (is_blank(line)) continue;
    try {
      return shape_of(parse_record(line));
    } catch (const Error& e) {
      if (bad.empty()) bad = fmt::format("{}:{}: {}", path, lines.number(), e.what());
      if (!skip_bad_lines) break;
    }
  }
  if (bad.empty()) fail("'{}': no records, only blank lines", path);
  fail("{}; each line of a file of JSON lines is a whole record", bad);
}

bool is_part_of_pair(const std::string& path) {
  const std::string prefix = megatron_prefix(path);
  return prefix != path && file_exists(prefix + ".idx") && file_exists(prefix + ".bin");
}

// `strict`: whatever is wrong with a file of this name is thrown, not told as a kind of its own.
Kind kind_of(const std::string& path, bool skip_bad_lines, bool strict) {
  if (is_part_of_pair(path)) return {Kind::megatron};
  if (has_ending(path, {".jsonl", ".ndjson"}))
    return {Kind::jsonl, first_shape(path, skip_bad_lines), true};
  if (has_ending(path, {".json"})) {
    try {
      return {Kind::jsonl, first_shape(path, skip_bad_lines), true};
    } catch (const Error&) {
      if (strict) throw;
      return {Kind::json};
    }
  }
  const std::string start = beginning(path);
  if (const size_t at = start.find('\0'); at != std::string::npos) {
    if (strict)
      fail(
          "'{}' is no text: byte {} is 0; convert text of another encoding to UTF-8, or have it "
          "read as it is with --format text",
          path, at);
    return {Kind::binary};
  }
  const size_t at = start.find_first_not_of("\xef\xbb\xbf \t\r\n");
  if (at != std::string::npos && start[at] == '{')
    if (const auto line = first_line(path))
      if (const auto shape = shape_of_line(line->first)) return {Kind::jsonl, *shape};
  return {Kind::text};
}

// One kind for all files; files of several kinds are refused, with one of each.
Kind kind_of_all(const SourceFiles& files, bool skip_bad_lines) {
  const size_t n = files.paths.size();
  const Kind first = kind_of(files.paths[0], skip_bad_lines, n == 1);
  for (size_t i = 1; i < n; ++i) {
    const Kind other = kind_of(files.paths[i], skip_bad_lines, false);
    if (first == other) continue;
    fail(
        "'{}' holds files of different formats: '{}' is {}, '{}' is {}; name the files to learn "
        "from, or a pattern like '*.jsonl', or read all of them alike with --format text or jsonl",
        files.root, files.name(0), first.name(), files.name(i), other.name());
  }
  if (first.what == Kind::megatron)
    fail("'{}' holds Megatron's files; name them one by one: '{}'", files.root,
         megatron_prefix(files.paths[0]));
  if (first.what == Kind::json || first.what == Kind::binary)
    kind_of(files.paths[0], skip_bad_lines, true);  // says why
  return first;
}

void detect(SourceFiles& files, const std::string& format, bool skip_bad_lines) {
  if (format == "auto") {
    const Kind kind = kind_of_all(files, skip_bad_lines);
    files.format = kind.what == Kind::jsonl ? Format::jsonl : Format::text;
    files.shape = kind.shape;
    files.detected =
        fmt::format("{}, from its {}", kind.name(), kind.named ? "name" : "first line");
    return;
  }
  files.format = format == "jsonl" ? Format::jsonl : Format::text;
  if (files.format == Format::jsonl) files.shape = first_shape(files.paths[0], skip_bad_lines);
  files.detected = files.format == Format::jsonl
                       ? fmt::format("jsonl ({}), as asked", shape_name(files.shape))
                       : "text, as asked";
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

SourceFiles find_files(const DataSource& source, bool skip_bad_lines) {
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
  detect(files, source.format, skip_bad_lines);
  return files;
}

}  // namespace plait
