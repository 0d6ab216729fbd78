#include "plait/io/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>

#include "plait/base/error.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

constexpr size_t kChunkBytes = size_t{1} << 30;  // Linux moves at most 2 GiB a call

[[noreturn]] void system_fail(std::string_view action, const std::string& path) {
  const int code = errno;
  fail("cannot {} '{}': {}", action, path, std::generic_category().message(code));
}

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

void sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) system_fail("open folder", path);
  const int result = ::fsync(descriptor);
  const int code = errno;
  ::close(descriptor);
  errno = code;
  // Some file systems cannot sync folders; there is nothing better to do on those.
  if (result != 0 && code != EINVAL && code != ENOTSUP) system_fail("sync folder", path);
}

std::string path_beside(const std::string& path) {
  static std::atomic<int64_t> count = 0;
  const fs::path p(path);
  for (;;) {
    const std::string name =
        fmt::format(".{}.saving-{}-{}", p.filename().string(), ::getpid(), count++);
    const fs::path candidate = p.parent_path() / name;
    struct stat status {};
    if (::lstat(candidate.c_str(), &status) != 0) return candidate.string();
  }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_beside(path_)) {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) system_fail("create", temporary_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  digest_.add(data, bytes);
  bytes_ += static_cast<int64_t>(bytes);
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(descriptor_, next, std::min(bytes, kChunkBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) system_fail("write", path_);
    next += n;
    bytes -= static_cast<size_t>(n);
  }
}

void AtomicFile::commit(bool sync) {
  if (sync && ::fsync(descriptor_) != 0) system_fail("sync", path_);
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) system_fail("close", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) system_fail("write", path_);
  temporary_.clear();
  if (sync) sync_folder(folder_of(path_));
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: a named pipe is refused below instead of waited for.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) system_fail("open", path_);
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail("cannot read '{}': not a regular file", path_);
  }
  size_ = status.st_size;
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(int64_t offset, void* data, int64_t bytes) const {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const size_t most = std::min(static_cast<size_t>(bytes), kChunkBytes);
    const ssize_t n = ::pread(descriptor_, next, most, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) system_fail("read", path_);
    if (n == 0) fail("cannot read '{}': it ends at byte {}, it was longer before", path_, offset);
    next += n;
    offset += n;
    bytes -= n;
  }
}

bool file_exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string read_text(const std::string& path, int64_t max_bytes) {
  const InputFile file(path);
  if (file.size() > max_bytes)
    fail("cannot read '{}': {} bytes, expected at most {}", path, file.size(), max_bytes);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void create_folders(const std::string& path) {
  if (path.empty() || is_folder(path)) return;
  const std::string parent = folder_of(path);
  create_folders(parent);
  if (::mkdir(path.c_str(), 0777) != 0 && !is_folder(path)) system_fail("create folder", path);
  sync_folder(parent);
}

void move_synced(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) system_fail("move a file or folder to", to);
  sync_folder(folder_of(to));
}

std::string file_digest(const InputFile& file) {
  Digest128 digest;
  std::string chunk;
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(chunk.size())) {
    chunk.resize(static_cast<size_t>(std::min<int64_t>(file.size() - at, 1 << 20)));
    file.read(at, chunk.data(), static_cast<int64_t>(chunk.size()));
    digest.add(chunk.data(), chunk.size());
  }
  return digest.text();
}

std::string exchange_folder(const std::string& fresh, const std::string& target) {
  sync_folder(fresh);
  const std::string parent = folder_of(target);
  const auto move = [](const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) system_fail("move a folder to", to);
  };
  if (!file_exists(target)) {
    move(fresh, target);
    sync_folder(parent);
    return {};
  }
  std::string old = fresh;
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) system_fail("replace folder", target);
    old = path_beside(target);
    move(target, old);
    try {
      move(fresh, target);
    } catch (const Error&) {
      ::rename(old.c_str(), target.c_str());
      throw;
    }
  }
  sync_folder(parent);
  return old;
}

void replace_folder(const std::string& fresh, const std::string& target) {
  const std::string old = exchange_folder(fresh, target);
  if (old.empty()) return;
  std::error_code error;
  fs::remove_all(old, error);
  if (error) fail("cannot remove the old folder '{}': {}", old, error.message());
}

}  // namespace plait
