// Checkpoints: states of a training run by name, whole tensors that know nothing of ranks, and
// whatever the trainer wants to remember. One folder holds a run's checkpoints:
//
//   FOLDER/.lock                                  of the process that saves here
//   FOLDER/step-00000100/manifest.json            says what is there, with checksums
//   FOLDER/step-00000100/states-00001-of-00002.safetensors
//
//   CheckpointStore store("run/checkpoints", 3);  // keep the last 3
//   store.save(100, trainer_state, tensors);
//   std::vector<std::string> notes;
//   if (auto last = store.load_latest(&notes)) resume(*last);
//
// A checkpoint is written under a hidden name, synced, and renamed: under its own name it is
// complete. What a killed process left is removed when the next one opens the store. The manifest's
// format is described in docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/base/host_tensor.h"

namespace plait {

struct Checkpoint {
  int64_t step = 0;
  nlohmann::ordered_json trainer;  // as it was saved
  HostTensors tensors;             // by full state name: "param/x", "m/x"
};

// What manifest.json says.
struct ManifestFile {
  std::string name, checksum;  // XXH3-128 of the bytes, in hexadecimal
  int64_t bytes = 0;
};
struct ManifestTensor {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> dims;
  size_t file = 0;  // index into Manifest::files
};
struct Manifest {
  int64_t step = 0;
  std::string saved;  // "2025-01-31T12:00:00Z"
  nlohmann::ordered_json trainer;
  std::vector<ManifestFile> files;
  std::map<std::string, ManifestTensor> tensors;
  std::string checksum;        // of everything else in it
  std::string found_checksum;  // what it should be; another one: the manifest is damaged
};
Manifest parse_manifest(std::string_view text, const std::string& source);
std::string print_manifest(const Manifest& manifest);  // with a fresh checksum

// States by the part of their names before the first '/'.
struct StateGroup {
  int64_t count = 0, bytes = 0, elements = 0;
  std::vector<std::string> dtypes;
};
struct CheckpointInfo {
  int64_t step = 0;
  std::string folder;
  std::string damage;  // what is wrong with it, or empty
  int64_t bytes = 0;   // of all its files
  Manifest manifest;   // empty when damaged
  std::map<std::string, StateGroup> groups;
};

// Reads, without a lock: also a folder that may not be written, or that a run writes into.
class CheckpointReader {
 public:
  explicit CheckpointReader(std::string folder);
  const std::string& folder() const { return folder_; }
  std::vector<int64_t> all_steps() const;  // complete or not, rising
  std::vector<int64_t> steps() const;      // complete ones: the files are there, of the right size
  Checkpoint load(int64_t step) const;     // every byte checked; throws what is wrong
  // The last one that is whole, or nothing when there is none. Damaged ones after it are named in
  // `notes`.
  std::optional<Checkpoint> load_latest(std::vector<std::string>* notes = nullptr) const;
  // Never throws for damage. With `verify`, checksums too.
  CheckpointInfo inspect(int64_t step, bool verify) const;

 protected:
  std::string path_of(int64_t step) const;

 private:
  std::string folder_;
};

class CheckpointStore : public CheckpointReader {
 public:
  // Creates the folder if need be and locks it; throws when another process (or another store of
  // this one) has it. Then removes what killed processes left. `keep_last` 0: all are kept.
  CheckpointStore(const std::string& folder, int64_t keep_last,
                  int64_t max_file_bytes = int64_t{4} << 30);
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Saves, replacing a checkpoint of that step, then removes all before the last `keep_last`
  // complete ones. NaN and infinities must not stand in `trainer`: JSON has none. When it throws,
  // the other checkpoints are as they were.
  void save(int64_t step, const nlohmann::ordered_json& trainer, const HostTensors& tensors);
  // Removes those of later steps: a run that went back to `step` on purpose goes another way.
  void discard_after(int64_t step);
  const std::vector<std::string>& notes() const {
    return notes_;
  }  // on what was found at the start

 private:
  void lock();
  void remove_leftovers();
  void remove(int64_t step);
  void remove_old(int64_t saved);
  int64_t keep_last_, max_file_bytes_;
  int lock_ = -1;
  std::vector<std::string> notes_;
};

}  // namespace plait
