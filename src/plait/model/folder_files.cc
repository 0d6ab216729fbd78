#include "plait/model/folder_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "plait/io/files.h"
#include "plait/io/folder_update.h"
#include "plait/io/tensor_folder.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

bool begins(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

bool ends(std::string_view text, std::string_view with) {
  return text.size() >= with.size() && text.substr(text.size() - with.size()) == with;
}

// Parameters in any format, and what a training run leaves: nothing of it fits the new parameters.
bool is_weights_or_run(std::string_view name) {
  for (const char* ending : {".safetensors", ".index.json", ".pt", ".pth", ".gguf", ".ggml", ".h5",
                             ".msgpack", ".onnx", ".onnx_data", ".ot", ".ckpt", ".npz", ".tflite"})
    if (ends(name, ending)) return true;
  for (const char* beginning : {"pytorch_model", "adapter_", "training_args", "optimizer.",
                                "scheduler.", "rng_state", "trainer_state", "events.out.tfevents"})
    if (begins(name, beginning)) return true;
  return name == "metrics.jsonl";
}

bool belongs_to_tokenizer(std::string_view name) {
  for (const char* beginning : {"tokenizer", "vocab", "merges", "special_tokens_map",
                                "added_tokens", "chat_template", "spiece", "sentencepiece"})
    if (begins(name, beginning)) return true;
  return ends(name, ".model") || ends(name, ".tiktoken");
}

// Files that say how to use the model of their folder, and would be wrong beside another.
bool belongs_to_model(std::string_view name) {
  for (const char* beginning : {"generation_config", "preprocessor_config", "processor_config"})
    if (begins(name, beginning)) return true;
  return belongs_to_tokenizer(name);
}

// "a.12.b" as "a.", 12, ".b" at the first part that is a number; -1 when there is none.
struct Numbered {
  std::string before, after;
  int64_t number = -1;
};

Numbered numbered(const std::string& name) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    int64_t number = 0;
    const char* last = name.data() + end;
    const auto r = std::from_chars(name.data() + begin, last, number);
    if (r.ec == std::errc() && r.ptr == last && number >= 0)
      return {name.substr(0, begin), name.substr(end), number};
    begin = end + 1;
  }
  return {name, "", -1};
}

// "0-3,7"
std::string ranges(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] <= numbers[j] + 1) ++j;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (numbers[j] > numbers[i]) text += "-" + std::to_string(numbers[j]);
    i = j + 1;
  }
  return text;
}

}  // namespace

bool replaced_by_model(std::string_view name) {
  return is_tensor_file(name) || name == "config.json" || name == "model.plait";
}

void carry_files(const std::string& from, const std::string& fresh, const std::string& target,
                 bool tokenizer) {
  std::error_code error;
  if (fs::equivalent(from, target, error)) return;  // they stay where they are
  if (!is_folder(from)) fail("cannot take files from '{}': it is no folder", from);
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(from))
    if (fs::is_regular_file(entry.path(), error))  // links too: downloads are kept as links
      names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  for (const fs::path& path : names) {
    const std::string name = path.string();
    if (name.front() == '.' || is_weights_or_run(name) || replaced_by_model(name)) continue;
    if (!tokenizer && belongs_to_tokenizer(name)) continue;
    if (file_exists((fs::path(target) / name).string()) && !belongs_to_model(name)) continue;
    copy_file_synced((fs::path(from) / name).string(), (fs::path(fresh) / name).string());
  }
}

std::string grouped_names(const std::vector<std::string>& names, size_t most) {
  std::map<std::pair<std::string, std::string>, size_t> place;
  std::vector<std::vector<Numbered>> groups;  // in the order of their first names
  for (const std::string& name : names) {
    const Numbered n = numbered(name);
    if (n.number < 0) {
      groups.push_back({n});
      continue;
    }
    const auto [it, added] = place.emplace(std::pair(n.before, n.after), groups.size());
    if (added) groups.emplace_back();
    groups[it->second].push_back(n);
  }
  std::string text;
  size_t shown = 0;
  for (size_t g = 0; g < groups.size() && g < most; ++g) {
    std::vector<int64_t> numbers;
    for (const Numbered& n : groups[g]) numbers.push_back(n.number);
    const Numbered& first = groups[g][0];
    text += (g > 0 ? ", " : "") + first.before;
    if (first.number >= 0) text += ranges(numbers) + first.after;
    shown += groups[g].size();
  }
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace plait
