// CheckpointStore: one process at a time, and what killed ones left behind (checkpoint.h).
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "plait/base/error.h"
#include "plait/io/checkpoint.h"
#include "plait/io/files.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLock = ".lock";

std::string words(int code) { return std::generic_category().message(code); }

// The process in ".step-00000100.saving-PID-COUNT", the names that path_beside makes; 0 for others.
int64_t process_of(const std::string& name) {
  constexpr std::string_view kBegin = ".step-", kMiddle = ".saving-";
  const size_t at = name.find(kMiddle);
  if (name.rfind(kBegin, 0) != 0 || at == std::string::npos) return 0;
  int64_t process = 0;
  const auto r =
      std::from_chars(name.data() + at + kMiddle.size(), name.data() + name.size(), process);
  return r.ec == std::errc() && *r.ptr == '-' && process > 0 ? process : 0;
}

// When a process of this machine started, in seconds since 1970; 0 when that is not known.
double start_of(int64_t process) {
  std::ifstream stat(fmt::format("/proc/{}/stat", process)), machine("/proc/stat");
  std::string line, word;
  std::getline(stat, line);
  const size_t end = line.rfind(')');  // the name in brackets may hold anything
  if (end == std::string::npos) return 0;
  std::istringstream fields(line.substr(end + 1));
  double ticks = 0, boot = 0;
  for (int i = 3; i < 22 && fields >> word; ++i) {
  }
  fields >> ticks;
  while (machine >> word)
    if (word == "btime") machine >> boot;
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return boot > 0 && per_second > 0 ? boot + ticks / per_second : 0;
}

// Whether the process may have made the folder and be at work on it still. Numbers of processes are
// used again: one that started after the folder was last changed has nothing to do with it.
bool may_be_alive(int64_t process, const fs::path& folder) {
  if (process == ::getpid()) return false;  // this store has not begun yet
  if (::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) return false;
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return false;
  const double started = start_of(process);
  return started == 0 || started <= static_cast<double>(status.st_mtime) + 1;
}

}  // namespace

CheckpointStore::CheckpointStore(const std::string& folder, int64_t keep_last,
                                 int64_t max_file_bytes)
    : CheckpointReader(folder), keep_last_(keep_last), max_file_bytes_(max_file_bytes) {
  if (folder.empty()) fail("cannot save checkpoints in a folder without a name");
  if (keep_last < 0) fail("keeping the last {} checkpoints; needs at least 0", keep_last);
  create_folders(folder);
  lock();
  try {
    remove_leftovers();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

CheckpointStore::~CheckpointStore() {
  if (lock_ >= 0) ::close(lock_);
}

void CheckpointStore::lock() {
  const std::string path = (fs::path(folder()) / kLock).string();
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) fail("cannot save checkpoints in '{}': {}", folder(), words(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) {
    const std::string owner = fmt::format("{}\n", ::getpid());
    if (::ftruncate(lock_, 0) != 0 ||
        ::pwrite(lock_, owner.data(), owner.size(), 0) != static_cast<ssize_t>(owner.size()))
      notes_.push_back(fmt::format("cannot write '{}': {}", path, words(errno)));
    return;
  }
  const int code = errno;
  std::string owner(20, '\0');
  const ssize_t n = ::pread(lock_, owner.data(), owner.size(), 0);
  owner.resize(n > 0 ? static_cast<size_t>(n) : 0);
  owner = owner.substr(0, owner.find('\n'));
  ::close(lock_);
  lock_ = -1;
  if (code == EWOULDBLOCK)
    fail("checkpoints in '{}' are being saved by process {}; choose another folder, or end it",
         folder(), owner.empty() ? "(unknown)" : owner);
  notes_.push_back(fmt::format("'{}' cannot be locked ({}), so two runs might save there", folder(),
                               words(code)));
}

void CheckpointStore::remove_leftovers() {
  if (lock_ < 0) return;  // another process may be at work
  for (const auto& entry : fs::directory_iterator(folder())) {
    const int64_t process = process_of(entry.path().filename().string());
    if (process == 0) continue;
    if (may_be_alive(process, entry.path())) {
      notes_.push_back(fmt::format("'{}' is left alone: process {} is alive and may be writing it",
                                   entry.path().string(), process));
      continue;
    }
    std::error_code error;
    fs::remove_all(entry.path(), error);
    notes_.push_back(
        error ? fmt::format("cannot remove '{}', which a killed run left: {}",
                            entry.path().string(), error.message())
              : fmt::format("removed '{}', which a killed run left", entry.path().string()));
  }
}

}  // namespace plait
