// Opening a source: is its cache still good, and if not, tokenising it.
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "plait/base/error.h"
#include "plait/data/megatron.h"
#include "plait/data/streams.h"
#include "plait/data/token_cache.h"
#include "plait/data/tokenise.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

constexpr size_t kPieceBytes = size_t{1} << 24;
// A file that changed so shortly before it was read may change again without another time.
constexpr int64_t kSettledNanoseconds = 2'000'000'000;

std::string hex(uint64_t n) { return fmt::format("{:016x}", n); }

int64_t nanoseconds(const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }

int64_t now() {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return nanoseconds(t);
}

// What the system says of a file, to notice a change without reading it.
json seen(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) fail("cannot read '{}'", path);
  const int64_t changed = nanoseconds(s.st_ctim);
  return {{"size", int64_t{s.st_size}},
          {"modified", nanoseconds(s.st_mtim)},
          {"changed", changed},
          {"inode", static_cast<int64_t>(s.st_ino)},
          {"settled", now() - changed > kSettledNanoseconds}};
}

std::vector<json> seen_all(const SourceFiles& files) {
  std::vector<json> all;
  for (const std::string& path : files.paths) all.push_back(seen(path));
  return all;
}

json options_of(const SourceFiles& files, const DataConfig& c) {
  return {{"format", format_name(files.format)}, {"shape", shape_name(files.shape)},
          {"add_special", c.add_special},        {"add_eos", c.add_eos},
          {"parse_special", c.parse_special},    {"separator", hex(digest(c.separator))},
          {"skip_bad_lines", c.skip_bad_lines},  {"piece_bytes", kPieceBytes}};
}

json stamp_of(const SourceFiles& files, const DataConfig& config, const Tokenizer& tokenizer,
              const ChatRenderer& renderer) {
  const bool templated = files.format == Format::jsonl && files.shape != Shape::text;
  return {{"tokenizer", hex(tokenizer.digest())},
          {"vocabulary", tokenizer.vocabulary()},
          {"template", templated ? hex(renderer.digest) : ""},
          {"options", options_of(files, config)}};
}

std::string content_digest(const std::string& path, const DataProgress& progress) {
  const InputFile file(path);
  Digest128 sum;
  std::string part;
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(part.size())) {
    part.resize(static_cast<size_t>(std::min<int64_t>(file.size() - at, 1 << 22)));
    file.read(at, part.data(), static_cast<int64_t>(part.size()));
    sum.add(part.data(), part.size());
    if (progress)
      progress(fmt::format("comparing '{}'", path), at + static_cast<int64_t>(part.size()),
               file.size());
  }
  return sum.text();
}

bool file_changed(const std::string& path, const json& then, const DataProgress& progress) {
  const json now = seen(path);
  if (now.at("size") != then.at("size")) return true;
  const bool same = now.at("modified") == then.at("modified") &&
                    now.at("changed") == then.at("changed") && now.at("inode") == then.at("inode");
  if (same && then.at("settled").get<bool>()) return false;
  return content_digest(path, progress) != then.at("digest").get<std::string>();
}

// Why a cache is no longer good; empty: it is.
std::string stale(const json& cached, const json& wanted, const SourceFiles& files,
                  const DataProgress& progress) {
  for (const auto& [key, words] : {std::pair("tokenizer", "the tokenizer changed"),
                                   {"vocabulary", "the tokenizer changed"},
                                   {"template", "the chat template changed"},
                                   {"options", "the options changed"}})
    if (cached.at(key) != wanted.at(key)) return words;
  const json& then = cached.at("files");
  if (then.size() != files.paths.size()) return "the list of files changed";
  for (size_t i = 0; i < files.paths.size(); ++i) {
    if (then.at(i).at("name") != files.name(i)) return "the list of files changed";
    if (file_changed(files.paths[i], then.at(i), progress))
      return fmt::format("'{}' changed", files.paths[i]);
  }
  return "";
}

class Opener {
 public:
  Opener(const SourceFiles& files, const DataConfig& config, const Tokenizer& tokenizer,
         const ChatRenderer& renderer, const DataProgress& progress, SourceReport& report,
         std::vector<std::string>& notes)
      : files_(files),
        config_(config),
        tokenizer_(tokenizer),
        renderer_(renderer),
        progress_(progress),
        report_(report),
        notes_(notes) {}

  std::unique_ptr<TokenCache> open() {
    if (!config_.cache) {
      report_.cache = "none kept";
      return build_temporary();
    }
    const std::string path = cache_path(files_.root, config_.cache_folder);
    std::string why;
    if (auto cache = read(path, why)) {
      report_.cache = fmt::format("read from '{}'", path);
      return take(std::move(cache));
    }
    const std::string problem = writable(path);
    if (!problem.empty()) {
      notes_.push_back(fmt::format("no cache of '{}' is kept: {}", files_.root, problem));
      report_.cache = "none kept";
      return build_temporary();
    }
    report_.cache = why.empty() ? fmt::format("written to '{}'", path)
                                : fmt::format("made anew in '{}': {}", path, why);
    if (!why.empty()) notes_.push_back(fmt::format("cache '{}' is made anew: {}", path, why));
    return build(path, true);
  }

 private:
  // The cache, if there is one that is whole and still good; otherwise `why` it is not.
  std::unique_ptr<TokenCache> read(const std::string& path, std::string& why) const {
    if (!file_exists(path)) return nullptr;
    try {
      auto cache = std::make_unique<TokenCache>(path);
      const json wanted = stamp_of(files_, config_, tokenizer_, renderer_);
      why = stale(cache->stamp(), wanted, files_, progress_);
      if (!why.empty()) return nullptr;
      cache->verify([&](int64_t done, int64_t all) {
        if (progress_) progress_(fmt::format("checking '{}'", path), done, all);
      });
      return cache;
    } catch (const Error& e) {
      why = fmt::format("it is damaged ({})", e.what());
    } catch (const json::exception&) {  // a whole file, but no stamp of ours
      why = "its stamp is another version's";
    }
    return nullptr;
  }

  static std::string writable(const std::string& path) {
    try {
      const fs::path folder = fs::path(path).parent_path();
      std::error_code error;
      if (!folder.empty()) fs::create_directories(folder, error);
      AtomicFile probe(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  std::unique_ptr<TokenCache> build_temporary() {
    std::error_code error;
    const fs::path folder = fs::temp_directory_path(error);
    if (error) fail("no folder for temporary files: {}", error.message());
    const std::string path = path_beside((folder / "plait-tokens").string());
    auto cache = build(path, false);
    fs::remove(path, error);  // the open file stays readable
    return cache;
  }

  std::unique_ptr<TokenCache> build(const std::string& path, bool kept) {
    const bool masked = files_.format == Format::jsonl && files_.shape != Shape::text;
    const Encoder encoder(config_, tokenizer_, renderer_);
    std::vector<json> files = seen_all(files_);
    TokenCacheWriter writer(path, tokenizer_.vocabulary(), masked,
                            files_.shape == Shape::preference);
    const TokeniseResult result = tokenise(files_, config_, encoder, tokenizer_.kind() != "bytes",
                                           kPieceBytes, progress_, writer);
    for (size_t i = 0; i < files.size(); ++i) {
      files[i]["name"] = files_.name(i);
      files[i]["digest"] = result.digests[i];
    }
    json stamp = stamp_of(files_, config_, tokenizer_, renderer_);
    stamp["files"] = files;
    stamp["skipped_lines"] = result.skipped_lines;
    stamp["empty_documents"] = result.empty_documents;
    stamp["notes"] = result.notes;
    writer.commit(stamp, kept);
    return take(std::make_unique<TokenCache>(path));
  }

  std::unique_ptr<TokenCache> take(std::unique_ptr<TokenCache> cache) {
    const json& stamp = cache->stamp();
    report_.skipped_lines = stamp.value("skipped_lines", int64_t{0});
    report_.empty_documents = stamp.value("empty_documents", int64_t{0});
    for (const json& note : stamp.value("notes", json::array()))
      if (note.is_string()) notes_.push_back(note.get<std::string>());
    report_.learnable = cache->learnable();
    report_.unlearnable_documents = cache->unlearnable_documents();
    return cache;
  }

  const SourceFiles& files_;
  const DataConfig& config_;
  const Tokenizer& tokenizer_;
  const ChatRenderer& renderer_;
  const DataProgress& progress_;
  SourceReport& report_;
  std::vector<std::string>& notes_;
};

std::unique_ptr<TokenStore> open_megatron(const SourceFiles& files, const DataProgress& progress,
                                          int64_t vocabulary, SourceReport& report) {
  auto store = std::make_unique<MegatronStore>(files.root);
  if (store->tokens() == 0) fail("'{}': no tokens", store->path());
  store->set_content(check_ids(*store, files.root, vocabulary, [&](int64_t done, int64_t all) {
    if (progress) progress(fmt::format("checking '{}'", store->path()), done, all);
  }));
  report.format = fmt::format("megatron ({})", store->type());
  report.cache = "tokens as they are";
  for (int64_t d = 0; d < store->documents(); ++d) {
    const int64_t n = store->length(d);
    report.empty_documents += n == 0 ? 1 : 0;
    report.unlearnable_documents += n == 1 ? 1 : 0;
    report.learnable += std::max<int64_t>(n - 1, 0);
  }
  return store;
}

}  // namespace

std::string cache_path(const std::string& source, const std::string& cache_folder) {
  fs::path absolute = fs::absolute(source).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  std::string name = absolute.filename().string();
  std::string folder = cache_folder.empty() ? absolute.parent_path().string() : cache_folder;
  const size_t wild = absolute.string().find_first_of("*?[");
  if (wild != std::string::npos && !file_exists(source)) {
    for (char& c : name)
      if (c == '*' || c == '?' || c == '[' || c == ']') c = '_';
    const fs::path fixed(absolute.string().substr(0, wild));
    if (cache_folder.empty()) folder = fixed.parent_path().string();
  }
  if (cache_folder.empty() && wild == std::string::npos)
    return (fs::path(folder) / ("." + name + ".plait-tokens")).string();
  const std::string key = hex(digest(absolute.string()));
  return (fs::path(folder) / fmt::format(".{}-{}.plait-tokens", name, key.substr(0, 8))).string();
}

std::unique_ptr<TokenStore> open_store(const DataSource& source, const DataConfig& config,
                                       const Tokenizer& tokenizer, const ChatRenderer& renderer,
                                       const DataProgress& progress, SourceReport& report,
                                       std::vector<std::string>& notes) {
  const SourceFiles files = find_files(source, config.skip_bad_lines);
  report.path = source.path;
  report.format = files.detected;
  report.examples = files.format == Format::jsonl && files.shape != Shape::text;
  report.files = static_cast<int64_t>(files.paths.size());
  if (files.empty_files > 0)
    notes.push_back(fmt::format("'{}': {} empty files left out", source.path, files.empty_files));
  const int64_t vocabulary = config.vocabulary > 0 ? config.vocabulary : tokenizer.vocabulary();
  std::unique_ptr<TokenStore> store;
  if (files.format == Format::megatron) {
    store = open_megatron(files, progress, vocabulary, report);
  } else {
    auto cache = Opener(files, config, tokenizer, renderer, progress, report, notes).open();
    if (cache->largest_id() >= vocabulary) check_ids(*cache, source.path, vocabulary, {});
    store = std::move(cache);
  }
  report.documents = store->documents() / (store->paired() ? 2 : 1);
  report.tokens = store->tokens();
  return store;
}

}  // namespace plait
