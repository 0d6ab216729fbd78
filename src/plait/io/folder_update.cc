#include "plait/io/folder_update.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "plait/base/error.h"
#include "plait/io/files.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

struct stat status_of(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0)
    fail("cannot read '{}': {}", path.string(), std::generic_category().message(errno));
  return status;
}

bool present(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

// Gives `from`, and what is in it, the name `to` too. What cannot have two names (on some file
// systems no file can) is left out; move_left_behind takes it over later.
void link_tree(const fs::path& from, const fs::path& to) {
  const struct stat status = status_of(from);
  if (S_ISDIR(status.st_mode)) {
    if (::mkdir(to.c_str(), 0700) != 0)
      fail("cannot create folder '{}': {}", to.string(), std::generic_category().message(errno));
    for (const auto& entry : fs::directory_iterator(from))
      link_tree(entry.path(), to / entry.path().filename());
    ::chmod(to.c_str(), status.st_mode & 07777);
    sync_folder(to.string());
    return;
  }
  std::error_code ignored;
  if (S_ISREG(status.st_mode)) {
    if (::link(from.c_str(), to.c_str()) != 0) return;
  } else if (S_ISLNK(status.st_mode)) {
    fs::copy_symlink(from, to, ignored);
  }
}

// Moves to `to` what is in `from` and not there yet, or there under the same name as an older file.
// `skip`: names of the top level that stay.
void move_left_behind(const fs::path& from, const fs::path& to,
                      const std::function<bool(const std::string&)>& skip) {
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(from)) names.push_back(entry.path().filename());
  const auto never = [](const std::string&) { return false; };
  for (const fs::path& name : names) {
    if (skip(name.string())) continue;
    const fs::path source = from / name, target = to / name;
    const struct stat one = status_of(source);
    if (!present(target)) {
      move_synced(source.string(), target.string());
      continue;
    }
    const struct stat two = status_of(target);
    if (S_ISDIR(one.st_mode) && S_ISDIR(two.st_mode))
      move_left_behind(source, target, never);
    else if (S_ISREG(one.st_mode) && one.st_ino != two.st_ino)  // written anew meanwhile
      move_synced(source.string(), target.string());
  }
}

}  // namespace

void check_updatable(const std::string& target) {
  const dev_t device = status_of(target).st_dev;
  for (const auto& entry : fs::directory_iterator(target))
    if (status_of(entry.path()).st_dev != device)
      fail("'{}': the folder '{}' in it is another file system; choose another folder", target,
           entry.path().filename().string());
}

namespace {

using Predicate = std::function<bool(const std::string&)>;

// Everything of `target` that does not stay behind gets a second name in `fresh`.
void keep_in(const std::string& fresh, const std::string& target, const Predicate& stays) {
  for (const auto& entry : fs::directory_iterator(target)) {
    const std::string name = entry.path().filename().string();
    if (!stays(name)) link_tree(entry.path(), fs::path(fresh) / name);
  }
  ::chmod(fresh.c_str(), status_of(target).st_mode & 07777);
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

}  // namespace

void update_folder(const std::string& fresh, const std::string& target,
                   const std::function<bool(std::string_view)>& dropped) {
  std::string old;
  Predicate stays;
  const ino_t fresh_inode = status_of(fresh).st_ino;
  try {
    const std::set<std::string> ours = names_in(fresh);
    stays = [ours, &dropped](const std::string& name) {
      return ours.count(name) > 0 || dropped(name);
    };
    if (present(target)) keep_in(fresh, target, stays);
    old = exchange_folder(fresh, target);
  } catch (const std::exception& e) {
    std::error_code error;
    if (present(fresh) && status_of(fresh).st_ino == fresh_inode)  // not exchanged yet
      fs::remove_all(fresh, error);
    fail("cannot update '{}': {}", target, e.what());
  }
  if (old.empty()) return;
  // From here on `old` may hold the only name of a file, so a failure leaves it where it is.
  std::error_code error;
  try {
    move_left_behind(old, target, stays);
  } catch (const std::exception& e) {
    fail("'{}' is updated, but what else was in it is still in '{}': {}", target, old, e.what());
  }
  fs::remove_all(old, error);
  if (error) fail("cannot remove the old folder '{}': {}", old, error.message());
}

void copy_file_synced(const std::string& from, const std::string& to) {
  const InputFile source(from);
  AtomicFile copy(to);
  std::string chunk;
  for (int64_t at = 0; at < source.size(); at += static_cast<int64_t>(chunk.size())) {
    chunk.resize(static_cast<size_t>(std::min<int64_t>(source.size() - at, 1 << 20)));
    source.read(at, chunk.data(), static_cast<int64_t>(chunk.size()));
    copy.write(chunk.data(), chunk.size());
  }
  copy.commit();
}

}  // namespace plait
