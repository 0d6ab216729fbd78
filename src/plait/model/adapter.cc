#include "plait/model/adapter.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "plait/io/files.h"
#include "plait/io/folder_update.h"
#include "plait/io/json.h"
#include "plait/io/safetensors.h"
#include "plait/model/stored.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kTensorFile = "adapter_model.safetensors";
constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;
using Json = nlohmann::json;

// ---- adapter_config.json ----

// Settings that change nothing of what is computed here.
constexpr std::string_view kHarmless[] = {
    "auto_mapping",   "base_model_name_or_path",
    "fan_in_fan_out",  // how the base stores its weights, which the model says itself
    "inference_mode", "megatron_core",           "peft_version", "qalora_group_size",
    "revision",       "runtime_config",          "task_type"};

// Switches that would change it, off. All other settings change nothing while they are null, [] or
// {}.
constexpr std::string_view kSwitches[] = {"ensure_weight_tying", "lora_bias", "use_bdlora",
                                          "use_dora", "use_qalora"};

bool is_nothing(const Json& value) {
  return value.is_null() || ((value.is_array() || value.is_object()) && value.empty());
}

class Settings {
 public:
  Settings(const Json& json, std::string source) : json_(json), source_(std::move(source)) {
    if (!json.is_object()) fail("{}: found no object of settings", source_);
  }

  LoraConfig run() {
    word("peft_type", {"LORA"}, true);
    word("task_type", {"CAUSAL_LM"}, false);
    word("bias", {"none"}, false);
    LoraConfig c;
    c.rank = rank();
    c.alpha = number("lora_alpha");
    c.rslora = boolean("use_rslora");
    c.dropout = dropout();
    c.targets = targets();
    c.modules_to_save = names("modules_to_save");
    if (const Json* base = find("base_model_name_or_path"); base != nullptr && base->is_string())
      c.base_model = base->get<std::string>();
    init();
    refuse_others();
    return c;
  }

 private:
  const Json* find(const std::string& key) {
    asked_.insert(key);
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }

  void word(const std::string& key, const std::vector<std::string>& known, bool needed) {
    const Json* value = find(key);
    if (value == nullptr && !needed) return;
    if (value == nullptr || !value->is_string() ||
        std::find(known.begin(), known.end(), value->get<std::string>()) == known.end())
      fail("{}: {} is {}; supported is {}", source_, key,
           value == nullptr ? "missing" : dump(*value), fmt::join(known, ", "));
  }

  int64_t rank() {
    const Json* value = find("r");
    if (value == nullptr || !value->is_number_integer() || value->get<int64_t>() < 1 ||
        value->get<int64_t>() > 1 << 16)
      fail("{}: r is {}; needs a whole number from 1 to {}", source_,
           value == nullptr ? "missing" : dump(*value), 1 << 16);
    return value->get<int64_t>();
  }

  double number(const std::string& key) {
    const Json* value = find(key);
    if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>()))
      fail("{}: {} is {}; needs a number", source_, key,
           value == nullptr ? "missing" : dump(*value));
    return value->get<double>();
  }

  // Of training in peft; kept, and not applied.
  double dropout() {
    if (find("lora_dropout") == nullptr) return 0;
    const double p = number("lora_dropout");
    if (p < 0 || p > 1) fail("{}: lora_dropout is {}; needs a number from 0 to 1", source_, p);
    return p;
  }

  bool boolean(const std::string& key) {
    const Json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) fail("{}: {} is {}; needs true or false", source_, key, dump(*value));
    return value->get<bool>();
  }

  std::vector<std::string> names(const std::string& key) {
    std::vector<std::string> result;
    const Json* value = find(key);
    if (value == nullptr) return result;
    if (!value->is_array()) fail("{}: {} is {}; needs a list of names", source_, key, dump(*value));
    for (const Json& name : *value) {
      if (!name.is_string() || name.get<std::string>().empty())
        fail("{}: {} holds {}; needs names", source_, key, dump(name));
      result.push_back(name.get<std::string>());
    }
    return result;
  }

  std::vector<std::string> targets() {
    const Json* value = find("target_modules");
    if (value != nullptr && value->is_string()) {
      if (value->get<std::string>() == "all-linear") return {"all-linear"};
      fail("{}: target_modules is the pattern {}; patterns are not supported, name the modules",
           source_, dump(*value));
    }
    std::vector<std::string> result = names("target_modules");
    if (result.empty()) fail("{}: no target_modules", source_);
    return result;
  }

  // Ways to draw A and B matter no more once they are in the file, unless they also change the
  // base model's weights.
  void init() {
    const Json* value = find("init_lora_weights");
    if (value == nullptr || value->is_boolean()) return;
    const std::string word = value->is_string() ? value->get<std::string>() : dump(*value);
    if (word == "gaussian" || word == "eva" || word == "orthogonal") return;
    fail("{}: init_lora_weights is '{}', which changes the base model; that is not supported",
         source_, word);
  }

  void refuse_others() {
    for (const auto& [key, value] : json_.items()) {
      if (asked_.contains(key) || is_nothing(value) ||
          std::find(std::begin(kHarmless), std::end(kHarmless), key) != std::end(kHarmless))
        continue;
      const bool off = value == false && std::find(std::begin(kSwitches), std::end(kSwitches),
                                                   key) != std::end(kSwitches);
      if (!off)
        fail("{}: setting '{}' is {}, which may change what is computed and is not supported",
             source_, key, dump(value));
    }
  }

  static std::string dump(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 200);
  }

  const Json& json_;
  std::string source_;
  std::set<std::string> asked_;
};

// The targets as PEFT writes them; "all-linear" as last parts of names where these say the same.
std::vector<std::string> target_names(const Model& model) {
  if (model.lora->targets != std::vector<std::string>{"all-linear"}) return model.lora->targets;
  std::set<std::string> whole, last;
  for (const LoraTarget& t : lora_targets(model)) whole.insert(module_name(model.params[t.weight]));
  for (const std::string& name : whole) last.insert(name.substr(name.rfind('.') + 1));
  for (const Param& p : model.params)
    for (const std::string& name : last)
      if (!p.name.starts_with(kPeftPrefix) && matches_module(module_name(p), name) &&
          !whole.contains(module_name(p)))
        return {whole.begin(), whole.end()};
  return {last.begin(), last.end()};
}

std::string config_text(const Model& model) {
  const LoraConfig& c = *model.lora;
  bool transposed = false;
  for (const LoraTarget& t : lora_targets(model))
    transposed = transposed || model.params[t.weight].file.transposed != t.transposed;
  Json json = {{"base_model_name_or_path", nullptr},
               {"bias", "none"},
               {"fan_in_fan_out", transposed},
               {"inference_mode", true},
               {"init_lora_weights", true},
               {"lora_alpha", c.alpha},
               {"lora_dropout", c.dropout},
               {"modules_to_save", nullptr},
               {"peft_type", "LORA"},
               {"r", c.rank},
               {"target_modules", target_names(model)},
               {"task_type", "CAUSAL_LM"},
               {"use_dora", false},
               {"use_rslora", c.rslora}};
  if (!c.base_model.empty()) json["base_model_name_or_path"] = c.base_model;
  if (!c.modules_to_save.empty()) json["modules_to_save"] = c.modules_to_save;
  if (c.alpha == std::floor(c.alpha) && std::abs(c.alpha) < 1e15)
    json["lora_alpha"] = static_cast<int64_t>(c.alpha);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// ---- adapter_model.safetensors ----

// One tensor of the file, and the parameters that are its rows, in order.
struct FileTensor {
  std::vector<int64_t> dims;  // as in the file
  bool transposed = false;
  std::vector<const Param*> parts;
};

std::vector<int64_t> sizes(const TensorType& type) {
  std::vector<int64_t> result;
  for (const Extent& e : type.dims) result.push_back(e.size);
  return result;
}

std::string file_name(const Param& p) {
  return p.file.tensor.starts_with(kPeftPrefix) ? p.file.tensor
                                                : std::string(kPeftPrefix) + p.file.tensor;
}

// Of the trained parameters: A, B and the modules to save.
std::map<std::string, FileTensor> file_layout(const Model& model) {
  if (!model.lora) fail("model '{}' has no adapters", model.name);
  std::map<std::string, FileTensor> layout;
  for (const Param& p : model.params)
    if (!p.frozen) layout[file_name(p)].parts.push_back(&p);
  for (auto& [name, tensor] : layout) {
    std::sort(tensor.parts.begin(), tensor.parts.end(),
              [](const Param* a, const Param* b) { return a->file.row < b->file.row; });
    const Param& first = *tensor.parts[0];
    int64_t row = 0;
    for (const Param* p : tensor.parts) {
      if (p->file.row != row || p->file.total_rows != first.file.total_rows)
        fail("parameter '{}': its rows of file tensor '{}' do not join the others'", p->name, name);
      row += p->rows();
    }
    if (row != first.file.total_rows)
      fail("file tensor '{}': its trained parameters take {} of {} rows", name, row,
           first.file.total_rows);
    tensor.dims = sizes(first.type);
    if (!tensor.dims.empty()) tensor.dims[0] = row;
    tensor.transposed = first.file.transposed;
    if (tensor.transposed) std::swap(tensor.dims.at(0), tensor.dims.at(1));
  }
  return layout;
}

// Calls copy(element of the file tensor, element of the parameter) for all of the parameter.
template <class Copy>
void for_each_element(const Param& p, Copy copy) {
  const int64_t n = p.type.elements(), width = n / p.rows();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = p.file.row + i / width, column = i % width;
    copy(p.file.transposed ? column * p.file.total_rows + row : row * width + column, i);
  }
}

std::string first_ten(const std::vector<std::string>& names) {
  const auto end = names.begin() + static_cast<int64_t>(std::min<size_t>(10, names.size()));
  return fmt::format("{}{}", fmt::join(names.begin(), end, ", "),
                     names.size() > 10 ? fmt::format(" and {} more", names.size() - 10) : "");
}

void check_tensors(const SafetensorsFile& file, const std::map<std::string, FileTensor>& layout) {
  std::vector<std::string> missing, unread;
  for (const auto& [name, tensor] : layout)
    if (file.find(name) == nullptr) missing.push_back(name);
  for (const SafetensorsEntry& e : file.entries())
    if (!layout.contains(e.name)) unread.push_back(e.name);
  std::string what;
  if (!missing.empty())
    what += fmt::format("; {} tensors are not in it: {}", missing.size(), first_ten(missing));
  if (!unread.empty())
    what += fmt::format("; {} of its tensors are no adapters of the model: {}", unread.size(),
                        first_ten(unread));
  if (!what.empty()) fail("'{}' does not fit the model{}", file.path(), what);
  for (const auto& [name, tensor] : layout) {
    const SafetensorsEntry& found = *file.find(name);
    if (found.dims != tensor.dims || !found.dtype || !info(*found.dtype).is_float)
      fail("'{}' tensor '{}': found {} [{}], expected floating-point [{}]", file.path(), name,
           found.type, fmt::join(found.dims, ", "), fmt::join(tensor.dims, ", "));
  }
}

HostTensor put_together(const Model& model, const std::string& name, const FileTensor& tensor,
                        const HostTensors& parameters) {
  HostTensor whole(param_dtype(model), tensor.dims);
  for (const Param* p : tensor.parts) {
    const auto it = parameters.find(p->name);
    if (it == parameters.end()) fail("cannot save adapter: parameter '{}' has no value", p->name);
    const HostTensor& part = it->second;
    if (part.dtype != param_dtype(model) || part.dims != sizes(p->type))
      fail("cannot save adapter: parameter '{}' of '{}' is {} [{}], expected {} [{}]", p->name,
           name, info(part.dtype).name, fmt::join(part.dims, ", "), info(param_dtype(model)).name,
           fmt::join(sizes(p->type), ", "));
    dispatch_float(param_dtype(model), [&]<class T>() {
      for_each_element(*p, [&](int64_t w, int64_t i) { whole.as<T>()[w] = part.as<T>()[i]; });
    });
  }
  return whole;
}

// Beside a model an adapter would be read along with it, and among other things a slip of the
// keyboard would make their folder an adapter's.
void check_is_adapters(const std::string& folder, const fs::path& target, bool run_folder) {
  std::string found;
  for (const char* name : {"config.json", "model.plait"})
    if (fs::exists(target / name)) found = fmt::format("a model ({})", name);
  if (found.empty() && !run_folder && !fs::is_empty(target) && !fs::exists(target / kConfigFile))
    found = fmt::format("other things ('{}')",
                        fs::directory_iterator(target)->path().filename().string());
  if (!found.empty())
    fail(
        "cannot save an adapter to '{}': found {} in it, expected a new or empty folder or an "
        "adapter's ({}); choose another folder",
        folder, found, kConfigFile);
}

fs::path adapter_target(const std::string& folder, const AdapterSaving& saving) {
  fs::path target = fs::weakly_canonical(fs::absolute(folder));
  if (!target.has_filename()) target = target.parent_path();
  if (!fs::is_directory(target.parent_path()))
    fail("cannot save to '{}': there is no folder '{}'", folder, target.parent_path().string());
  if (fs::exists(target)) {
    if (!fs::is_directory(target)) fail("cannot save to '{}': it is no folder", folder);
    check_is_adapters(folder, target, saving.run_folder);
    check_updatable(target.string());
  }
  return target;
}

void write_adapter(const Model& model, const HostTensors& parameters, const std::string& folder,
                   const AdapterSaving& saving) {
  HostTensors whole;
  for (const auto& [name, tensor] : file_layout(model))
    whole[name] = to_stored(put_together(model, name, tensor, parameters),
                            saving.storage.value_or(param_dtype(model)), name);
  std::vector<std::pair<std::string, const HostTensor*>> tensors;
  for (const auto& [name, tensor] : whole) tensors.emplace_back(name, &tensor);
  const fs::path target = adapter_target(folder, saving);
  const fs::path fresh = path_beside(target.string());
  std::error_code error;
  if (!fs::create_directory(fresh, error))
    fail("cannot create folder '{}': {}", fresh.string(), error.message());
  try {
    write_safetensors((fresh / kTensorFile).string(), tensors);
    write_text((fresh / kConfigFile).string(), config_text(model));
  } catch (...) {
    fs::remove_all(fresh, error);
    throw;
  }
  update_folder(fresh.string(), target.string(),
                [](std::string_view name) { return name == kConfigFile || name == kTensorFile; });
}

}  // namespace

LoraConfig load_adapter_config(const std::string& folder) {
  const std::string path = (fs::path(folder) / kConfigFile).string();
  return parse_adapter_config(read_text(path, kMaxConfigBytes), path);
}

LoraConfig parse_adapter_config(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source, 32, 1000);
  return Settings(json, source).run();
}

HostTensors load_adapter(const Model& model, const std::string& folder) {
  const auto layout = file_layout(model);
  const SafetensorsFile file((fs::path(folder) / kTensorFile).string());
  check_tensors(file, layout);
  HostTensors result;
  for (const auto& [name, tensor] : layout) {
    const HostTensor whole = convert(file.read(name), param_dtype(model));
    for (const Param* p : tensor.parts) {
      HostTensor part(param_dtype(model), sizes(p->type));
      dispatch_float(param_dtype(model), [&]<class T>() {
        for_each_element(*p, [&](int64_t w, int64_t i) { part.as<T>()[i] = whole.as<T>()[w]; });
      });
      result[p->name] = std::move(part);
    }
  }
  return result;
}

void check_adapter_target(const std::string& folder, const AdapterSaving& saving) {
  try {
    adapter_target(folder, saving);
  } catch (const fs::filesystem_error& e) {
    fail("cannot save to '{}': {}", folder, e.code().message());
  }
}

void save_adapter(const Model& model, const HostTensors& parameters, const std::string& folder,
                  const AdapterSaving& saving) {
  try {
    write_adapter(model, parameters, folder, saving);
  } catch (const fs::filesystem_error& e) {
    fail("cannot save to '{}': {}", folder, e.code().message());
  }
}

}  // namespace plait
