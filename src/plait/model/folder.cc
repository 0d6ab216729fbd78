#include "plait/model/folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "plait/io/files.h"
#include "plait/io/folder_update.h"
#include "plait/io/tensor_folder.h"
#include "plait/model/config.h"
#include "plait/model/folder_files.h"
#include "plait/model/stored.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

std::vector<int64_t> sizes(const TensorType& type) {
  std::vector<int64_t> result;
  for (const Extent& e : type.dims) result.push_back(e.size);
  return result;
}

std::string words(const std::vector<int64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

// One tensor of the file, and the parameters that are its rows, in order.
struct FileTensor {
  std::vector<int64_t> dims;  // as in the file
  std::vector<const Param*> parts;
};

// Throws unless the parts of every tensor are exactly its rows.
std::map<std::string, FileTensor> file_layout(const Model& model) {
  std::map<std::string, FileTensor> layout;
  for (const Param& p : model.params) layout[p.file.tensor].parts.push_back(&p);
  for (auto& [name, tensor] : layout) {
    std::sort(tensor.parts.begin(), tensor.parts.end(), [](const Param* a, const Param* b) {
      return std::tie(a->file.row, a->name) < std::tie(b->file.row, b->name);
    });
    const Param& first = *tensor.parts[0];
    tensor.dims = sizes(first.type);
    int64_t row = 0;
    for (const Param* p : tensor.parts) {
      std::vector<int64_t> dims = sizes(p->type);
      if (!dims.empty()) dims[0] = tensor.dims[0];
      if (p->file.row != row || p->file.transposed != first.file.transposed ||
          p->file.total_rows != first.file.total_rows || dims != tensor.dims)
        fail("parameter '{}': rows {} to {} of file tensor '{}' do not join the others' there",
             p->name, p->file.row, p->file.row + p->rows(), name);
      row += p->rows();
    }
    if (row != first.file.total_rows)
      fail("file tensor '{}': parameters take {} of {} rows", name, row, first.file.total_rows);
    if (!tensor.dims.empty()) tensor.dims[0] = row;
    if (first.file.transposed) std::swap(tensor.dims[0], tensor.dims[1]);
  }
  return layout;
}

// Calls copy(element of the file tensor, element of the parameter) for all of the parameter.
template <class Copy>
void for_each_element(const Param& p, Copy copy) {
  const int64_t n = p.type.elements();
  const int64_t width = n / p.rows();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = p.file.row + i / width, column = i % width;
    copy(p.file.transposed ? column * p.file.total_rows + row : row * width + column, i);
  }
}

bool same_as_file(const FileTensor& tensor) {
  return tensor.parts.size() == 1 && !tensor.parts[0]->file.transposed;
}

constexpr const char* kHead = "lm_head.weight";  // in the files of every family

// The parameter that the last use shares with an earlier one: a tied embedding. Files may hold a
// copy of it as lm_head.weight.
const Param* tied_head(const Model& model) {
  if (model.uses.empty()) return nullptr;
  for (const size_t p : model.uses.back().params)
    for (size_t u = 0; u + 1 < model.uses.size(); ++u)
      if (std::count(model.uses[u].params.begin(), model.uses[u].params.end(), p) > 0)
        return &model.params[p];
  return nullptr;
}

std::vector<std::string_view> parts(std::string_view name) {
  std::vector<std::string_view> result;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    result.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

bool matches(std::string_view name, std::string_view pattern) {
  const auto a = parts(name), b = parts(pattern);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](std::string_view x, std::string_view y) { return y == "*" || x == y; });
}

// How the names of a model's tensors stand in one folder.
class Names {
 public:
  Names(const FileRules& rules, bool without_prefix)
      : rules_(rules), without_prefix_(without_prefix) {}

  std::string in_file(const std::string& full) const {
    const bool cut = without_prefix_ && full.rfind(rules_.optional_prefix, 0) == 0;
    return cut ? full.substr(rules_.optional_prefix.size()) : full;
  }
  bool is_ignored(const std::string& in_file) const {
    const std::string full = without_prefix_ ? rules_.optional_prefix + in_file : in_file;
    return std::any_of(rules_.ignored.begin(), rules_.ignored.end(),
                       [&](const std::string& pattern) { return matches(full, pattern); });
  }

 private:
  const FileRules& rules_;
  bool without_prefix_;
};

bool lacks_prefix(const FileRules& rules, const std::vector<std::string>& names) {
  return !rules.optional_prefix.empty() &&
         std::none_of(names.begin(), names.end(), [&](const std::string& name) {
           return name.rfind(rules.optional_prefix, 0) == 0;
         });
}

using Layout = std::map<std::string, FileTensor>;

// Sorts the tensors that are no parameters into the report; throws, naming all, when some have
// no place there or parameters are missing.
void check_names(const Model& model, const TensorFolder& files, const Layout& layout,
                 const Names& names, FileReport& report) {
  std::vector<std::string> missing, unread;
  std::set<std::string> wanted;
  for (const auto& [full, tensor] : layout) {
    wanted.insert(names.in_file(full));
    if (files.contains(names.in_file(full))) continue;
    for (const Param* p : tensor.parts) missing.push_back(p->name);
  }
  for (const std::string& name : files.names()) {
    if (wanted.count(name) > 0) continue;
    if (name == kHead && tied_head(model) != nullptr)
      report.tied.push_back(name);
    else if (names.is_ignored(name))
      report.ignored.push_back(name);
    else
      unread.push_back(name);
  }
  std::string what;
  if (!missing.empty())
    what +=
        fmt::format("; {} parameters are not in it: {}", missing.size(), grouped_names(missing));
  if (!unread.empty())
    what += fmt::format("; {} of its tensors are no parameters: {}", unread.size(),
                        grouped_names(unread));
  if (!what.empty()) fail("'{}' does not fit the model{}", files.path(), what);
}

void check_types(TensorFolder& files, const Layout& layout, const Names& names,
                 FileReport& report) {
  for (const auto& [full, tensor] : layout) {
    const SafetensorsEntry& found = files.entry(names.in_file(full));
    if (found.dims != tensor.dims || !found.dtype || !info(*found.dtype).is_float)
      fail("'{}' tensor '{}': found {} {}, expected floating-point {}", files.path(), found.name,
           found.type, words(found.dims), words(tensor.dims));
    report.dtypes[full] = *found.dtype;
    report.bytes += found.end - found.begin;
    ++report.tensors;
  }
}

// A stored copy of a tied parameter must be a copy: which of two would be the model?
void check_tied(TensorFolder& files, const Model& model, const Names& names) {
  const std::string original = names.in_file(tied_head(model)->file.tensor);
  const SafetensorsEntry &a = files.entry(original), &b = files.entry(kHead);
  bool equal = a.dims == b.dims && b.dtype && info(*b.dtype).is_float;
  if (equal && a.dtype == b.dtype)
    equal = files.read(original).data == files.read(kHead).data;
  else if (equal)
    equal = convert(files.read(original), Dtype::f64) == convert(files.read(kHead), Dtype::f64);
  if (!equal)
    fail(
        "'{}': tensor '{}' ({} {}) is no copy of '{}' ({} {}), though config.json ties the two; "
        "set tie_word_embeddings to false if it should not, or remove one",
        files.path(), kHead, b.type, words(b.dims), original, a.type, words(a.dims));
}

// One tensor of the file, put together from its parameters, in the model's element type.
HostTensor file_tensor(const Model& model, const FileTensor& tensor,
                       const HostTensors& parameters) {
  if (same_as_file(tensor)) return parameters.at(tensor.parts[0]->name);
  HostTensor whole(param_dtype(model), tensor.dims);
  for (const Param* p : tensor.parts) {
    const HostTensor& part = parameters.at(p->name);
    dispatch_float(param_dtype(model), [&]<class T>() {
      for_each_element(*p, [&](int64_t w, int64_t i) { whole.as<T>()[w] = part.as<T>()[i]; });
    });
  }
  return whole;
}

void check_parameters(const Model& model, const HostTensors& parameters) {
  std::vector<std::string> missing, extra;
  std::set<std::string> known;
  for (const Param& p : model.params) {
    known.insert(p.name);
    const auto it = parameters.find(p.name);
    if (it == parameters.end()) {
      missing.push_back(p.name);
      continue;
    }
    const HostTensor& t = it->second;
    if (t.dtype != param_dtype(model) || t.dims != sizes(p.type))
      fail("cannot save parameter '{}': found {} {}, expected {} {}", p.name, info(t.dtype).name,
           words(t.dims), info(param_dtype(model)).name, words(sizes(p.type)));
  }
  for (const auto& [name, tensor] : parameters)
    if (known.count(name) == 0) extra.push_back(name);
  if (!missing.empty() || !extra.empty())
    fail(
        "cannot save model '{}': {} parameters have no value ({}), {} values are no parameters "
        "({})",
        model.name, missing.size(), grouped_names(missing), extra.size(), grouped_names(extra));
}

// The folder to save into, without links and a trailing slash. Refuses what holds other things than
// a model: a slip of the keyboard must not make a home folder a model's.
fs::path folder_to_replace(const std::string& folder, const SaveOptions& options) {
  if (folder.empty()) fail("cannot save a model to a folder without a name");
  fs::path path = fs::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (fs::is_symlink(path)) path = fs::canonical(path);
  if (!fs::exists(path)) {
    if (!fs::is_directory(path.parent_path()))
      fail("cannot save to '{}': there is no folder '{}'", folder, path.parent_path().string());
    return path;
  }
  if (!fs::is_directory(path)) fail("cannot save to '{}': it is no folder", folder);
  const bool model = fs::exists(path / "config.json") || fs::exists(path / "model.plait");
  if (!model && !options.run_folder && !fs::is_empty(path))
    fail("cannot save to '{}': it exists and holds no model; choose another folder", folder);
  check_updatable(path.string());
  return path;
}

// What a file tensor is stored as. SaveOptions::storage says by which rule.
class Storage {
 public:
  Storage(const Model& model, const SaveOptions& options) : asked_(options.storage) {
    if (asked_ && !info(*asked_).is_float)
      fail("cannot save model '{}' as {}; expected f64, f32, bf16 or f16", model.name,
           info(*asked_).name);
    configured_ = param_dtype(model);
    if (!model.config_json.empty()) {
      Config config(model.config_json);
      if (config.dtype() == param_dtype(model))
        configured_ = config.storage();
      else
        asked_ = asked_.value_or(param_dtype(model));  // changed after it was built
    }
    if (!asked_ && options.as_read != nullptr) read_ = &options.as_read->dtypes;
  }

  Dtype of(const std::string& full_name) const {
    if (asked_) return *asked_;
    if (read_ == nullptr) return configured_;
    const auto it = read_->find(full_name);
    return it == read_->end() ? configured_ : it->second;
  }
  std::string config(const std::string& text) const {
    return asked_ ? config_with_dtype(text, *asked_) : text;
  }

 private:
  std::optional<Dtype> asked_;
  Dtype configured_ = Dtype::f32;
  const std::map<std::string, Dtype>* read_ = nullptr;
};

void write_parameters(const Model& model, const HostTensors& parameters, const std::string& folder,
                      const Storage& storage, const SaveOptions& options) {
  const Layout layout = file_layout(model);
  const Names names(model.files, options.as_read != nullptr && options.as_read->without_prefix);
  std::vector<SafetensorsSpec> specs;
  std::map<std::string, std::string> full_of;  // name in the file to name in the model
  for (const auto& [full, tensor] : layout) {
    specs.push_back({names.in_file(full), storage.of(full), tensor.dims});
    full_of[specs.back().name] = full;
  }
  if (options.as_read != nullptr && tied_head(model) != nullptr)
    for (const std::string& copy : options.as_read->tied) {
      const std::string& full = tied_head(model)->file.tensor;
      specs.push_back({copy, storage.of(full), layout.at(full).dims});
      full_of[copy] = full;
    }
  write_tensor_folder(
      folder, std::move(specs), options.max_shard_bytes, [&](const SafetensorsSpec& spec) {
        const FileTensor& tensor = layout.at(full_of.at(spec.name));
        return to_stored(file_tensor(model, tensor, parameters), spec.dtype, spec.name);
      });
}

}  // namespace

std::string FileReport::text() const {
  std::map<std::string_view, int64_t> types;
  for (const auto& [name, dtype] : dtypes) ++types[info(dtype).name];
  std::vector<std::string> kinds;
  for (const auto& [name, count] : types) kinds.push_back(fmt::format("{} {}", count, name));
  std::string t = fmt::format("{} tensors ({}), {} bytes, from {}{}\n", tensors,
                              fmt::join(kinds, ", "), bytes, files.empty() ? "" : files[0],
                              files.size() > 1 ? fmt::format(" to {}", files.back()) : "");
  for (const std::string& name : tied)
    t += fmt::format("{} is stored too, equal to the embedding that it is tied to\n", name);
  if (!ignored.empty())
    t += fmt::format("{} tensors are no parameters and not needed: {}\n", ignored.size(),
                     grouped_names(ignored));
  for (const std::string& note : notes) t += note + "\n";
  return t;
}

std::string check_save_target(const std::string& folder, const SaveOptions& options) {
  try {
    return folder_to_replace(folder, options).string();
  } catch (const fs::filesystem_error& e) {
    fail("cannot save to '{}': {}", folder, e.code().message());
  }
}

HostTensors load_parameters(const Model& model, const std::string& folder, FileReport* report) {
  TensorFolder files(folder);
  const Layout layout = file_layout(model);
  FileReport found;
  found.without_prefix = lacks_prefix(model.files, files.names());
  const Names names(model.files, found.without_prefix);
  check_names(model, files, layout, names, found);
  check_types(files, layout, names, found);
  if (!found.tied.empty()) check_tied(files, model, names);
  HostTensors result;
  for (const auto& [name, tensor] : layout) {
    HostTensor whole = convert(files.read(names.in_file(name)), param_dtype(model));
    if (same_as_file(tensor)) {
      result[tensor.parts[0]->name] = std::move(whole);
      continue;
    }
    for (const Param* p : tensor.parts) {
      HostTensor part(param_dtype(model), sizes(p->type));
      dispatch_float(param_dtype(model), [&]<class T>() {
        for_each_element(*p, [&](int64_t w, int64_t i) { part.as<T>()[i] = whole.as<T>()[w]; });
      });
      result[p->name] = std::move(part);
    }
  }
  found.files = files.opened();
  if (const std::string note = files.size_note(); !note.empty()) found.notes.push_back(note);
  if (report != nullptr) *report = std::move(found);
  return result;
}

void save_model(const Model& model, const HostTensors& parameters, const std::string& folder,
                const SaveOptions& options) {
  if (model.lora)
    fail("model '{}' has adapters: save them alone (save_adapter), or merged (merge_lora)",
         model.name);
  check_parameters(model, parameters);
  const Storage storage(model, options);
  const std::string target = check_save_target(folder, options), fresh = path_beside(target);
  std::error_code error;
  if (!fs::create_directory(fresh, error))
    fail("cannot create folder '{}': {}", fresh, error.message());
  try {
    write_parameters(model, parameters, fresh, storage, options);
    if (model.config_json.empty())
      write_text(fresh + "/model.plait", print_model(model));
    else
      write_text(fresh + "/config.json", storage.config(model.config_json));
    if (!options.carry.empty())
      carry_files(options.carry, fresh, target, options.tokenizer.empty());
    for (const auto& [name, text] : options.tokenizer) write_text(fresh + "/" + name, text);
  } catch (const fs::filesystem_error& e) {
    fs::remove_all(fresh, error);
    fail("cannot save to '{}': {}", folder, e.what());
  } catch (...) {
    fs::remove_all(fresh, error);
    throw;
  }
  update_folder(fresh, target, replaced_by_model);
}

}  // namespace plait
