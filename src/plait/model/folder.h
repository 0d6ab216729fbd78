// Models in Hugging Face's folders: config.json, one model.safetensors or shards with an index,
// and the files beside them.
//
//   FileReport as_read;
//   HostTensors parameters = load_parameters(model, "llama", &as_read);
//   ...
//   SaveOptions options;
//   options.carry = "llama";       // its tokenizer and other files go along
//   options.as_read = &as_read;    // names and element types as they were
//   save_model(model, parameters, "tuned", options);
//
// Reading is strict: a parameter that is in no file and a tensor that is no parameter are named
// and refused. Writing is atomic, and what it finds in the folder and does not know it leaves.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plait/model/model.h"

namespace plait {

// What load_parameters found in the files.
struct FileReport {
  std::vector<std::string> files;       // those with parameters, by name
  int64_t tensors = 0, bytes = 0;       // read
  bool without_prefix = false;          // names lack FileRules::optional_prefix
  std::map<std::string, Dtype> dtypes;  // of the model's file tensors, by their full names
  std::vector<std::string> tied;        // copies of tied parameters, equal to them
  std::vector<std::string> ignored;     // FileRules::ignored: not read
  std::vector<std::string> notes;       // oddities that do no harm, in words
  std::string text() const;             // all of it, for people
};

// Parameters of a Hugging Face folder, converted to the model's element type. Throws when a
// parameter is not in the files, when a tensor of the files is no parameter, on wrong shapes.
// Files that hold nothing that is needed are not opened.
HostTensors load_parameters(const Model& model, const std::string& folder,
                            FileReport* report = nullptr);

struct SaveOptions {
  // Nothing: as it was read, else what config.json says, else what the model computes in. A model
  // whose element type was changed after it was built is saved in that type.
  std::optional<Dtype> storage;
  int64_t max_shard_bytes = 5'000'000'000;  // Hugging Face's own default; of tensors
  std::string carry;                        // a folder whose other files go along; empty: none
  // Name and text of the tokenizer's files, in place of those that `carry` has; none: these.
  std::map<std::string, std::string> tokenizer;
  const FileReport* as_read = nullptr;  // names, element types and tied copies as they were
  bool run_folder = false;  // the folder may hold other things and no model yet: a training run's
};

// Throws Error, now and not after hours of training, when save_model would refuse the folder.
// Returns its path with links resolved.
std::string check_save_target(const std::string& folder, const SaveOptions& options = {});

// Writes config.json (or model.plait for a text model) and the parameters into a new folder
// beside the target, syncs, and exchanges the two. Other files and folders of the target stay;
// weights, config and tokenizer of the model that was there are replaced. Throws, and leaves
// everything as it was, when a value is not finite, in memory or as it would be stored.
void save_model(const Model& model, const HostTensors& parameters, const std::string& folder,
                const SaveOptions& options = {});

}  // namespace plait
