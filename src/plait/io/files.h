// Files and folders that are never half-written, and bounded reads.
//
//   AtomicFile file("out/model.safetensors");
//   file.write(bytes.data(), bytes.size());
//   file.commit();  // without it, nothing appears under that name
//
// All throw Error with the path and the system's own words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plait/base/digest.h"

namespace plait {

// A file that appears under its name only when it is complete and on the disk: written beside
// it under another name, synced, renamed. The temporary file goes away with the object.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, size_t bytes);
  void commit(bool sync = true);  // false: for what need not outlive a crash of the machine
  const Digest128& digest() const { return digest_; }  // of what was written so far
  int64_t bytes() const { return bytes_; }

 private:
  std::string path_, temporary_;
  Digest128 digest_;
  int64_t bytes_ = 0;
  int descriptor_ = -1;
};

// A regular file open for reading at any offset. Bytes are copied, never mapped: a mapped file
// can change after it was checked.
class InputFile {
 public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  void read(int64_t offset, void* data, int64_t bytes) const;  // all of them, or throws

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

bool file_exists(const std::string& path);  // anything under that name; false when unreadable
bool is_folder(const std::string& path);

std::string read_text(const std::string& path, int64_t max_bytes);
void write_text(const std::string& path, std::string_view text);  // atomically

// A path beside `path` that does not exist yet: "dir/.name.saving-PID-COUNT".
std::string path_beside(const std::string& path);

// Creates the folder and those above it that are missing, each synced into the one above.
void create_folders(const std::string& path);
void sync_folder(const std::string& path);
// Renames within one file system and syncs the folder that holds the new name.
void move_synced(const std::string& from, const std::string& to);
std::string file_digest(const InputFile& file);  // Digest128 of all of it, in hexadecimal

// Puts the complete folder `fresh` in the place of `target`, which may exist; both have one
// parent. Where the file system can exchange two names (RENAME_EXCHANGE), `target` holds the old
// or the new content at every moment. Elsewhere the old folder is moved aside first, so a crash
// between two renames leaves both under temporary names. The old content is then deleted;
// returned as it lies, beside the target, by exchange_folder.
void replace_folder(const std::string& fresh, const std::string& target);
std::string exchange_folder(const std::string& fresh, const std::string& target);  // "": none

}  // namespace plait
