// Parameters in Hugging Face folders: load_parameters and save_model.
#include <algorithm>
#include <filesystem>
#include <set>

#include "plait/io/files.h"
#include "plait/io/safetensors.h"
#include "plait/model/config.h"
#include "plait/model/families.h"

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

std::string first_ten(const std::vector<std::string>& names) {
  std::string s;
  for (size_t i = 0; i < names.size() && i < 10; ++i) s += (i > 0 ? ", " : "") + names[i];
  if (names.size() > 10) s += fmt::format(" and {} more", names.size() - 10);
  return s;
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

void check_names(const SafetensorsFile& file, const std::map<std::string, FileTensor>& layout) {
  std::vector<std::string> missing, unread;
  for (const auto& [name, tensor] : layout)
    if (file.find(name) == nullptr)
      for (const Param* p : tensor.parts) missing.push_back(p->name);
  for (const SafetensorsEntry& e : file.entries())
    if (layout.find(e.name) == layout.end()) unread.push_back(e.name);
  std::string what;
  if (!missing.empty())
    what += fmt::format("; {} parameters are not in it: {}", missing.size(), first_ten(missing));
  if (!unread.empty())
    what +=
        fmt::format("; {} of its tensors are no parameters: {}", unread.size(), first_ten(unread));
  if (!what.empty()) fail("'{}' does not fit the model{}", file.path(), what);
}

// The tensors of the file; fused ones are put together in `fused`.
std::vector<std::pair<std::string, const HostTensor*>> file_tensors(const Model& model,
                                                                    const HostTensors& parameters,
                                                                    HostTensors& fused) {
  std::vector<std::pair<std::string, const HostTensor*>> result;
  for (const auto& [name, tensor] : file_layout(model)) {
    if (same_as_file(tensor)) {
      result.emplace_back(name, &parameters.at(tensor.parts[0]->name));
      continue;
    }
    HostTensor whole(model.dtype, tensor.dims);
    for (const Param* p : tensor.parts) {
      const HostTensor& part = parameters.at(p->name);
      dispatch_float(model.dtype, [&]<class T>() {
        for_each_element(*p, [&](int64_t w, int64_t i) { whole.as<T>()[w] = part.as<T>()[i]; });
      });
    }
    fused[name] = std::move(whole);
    result.emplace_back(name, &fused.at(name));
  }
  return result;
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
    if (t.dtype != model.dtype || t.dims != sizes(p.type))
      fail("cannot save parameter '{}': found {} {}, expected {} {}", p.name, info(t.dtype).name,
           words(t.dims), info(model.dtype).name, words(sizes(p.type)));
  }
  for (const auto& [name, tensor] : parameters)
    if (known.count(name) == 0) extra.push_back(name);
  if (!missing.empty() || !extra.empty())
    fail(
        "cannot save model '{}': {} parameters have no value ({}), {} values are no parameters "
        "({})",
        model.name, missing.size(), first_ten(missing), extra.size(), first_ten(extra));
}

// The folder to replace, without links and a trailing slash. Refuses what is no model's folder,
// because replacing deletes it.
fs::path folder_to_replace(const std::string& folder) {
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
  if (!fs::is_empty(path) && !fs::exists(path / "config.json") && !fs::exists(path / "model.plait"))
    fail("cannot save to '{}': it exists and holds no model; choose another folder", folder);
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_directory())
      fail("cannot save to '{}': it would be replaced whole, and holds the folder '{}'", folder,
           entry.path().filename().string());
  return path;
}

}  // namespace

std::string check_save_target(const std::string& folder) {
  try {
    return folder_to_replace(folder).string();
  } catch (const fs::filesystem_error& e) {
    fail("cannot save to '{}': {}", folder, e.code().message());
  }
}

HostTensors load_parameters(const Model& model, const std::string& folder) {
  const fs::path path(folder);
  if (file_exists(path / "model.safetensors.index.json"))
    fail("'{}': sharded safetensors are not supported yet; join them into one model.safetensors",
         (path / "model.safetensors.index.json").string());
  const SafetensorsFile file((path / "model.safetensors").string());
  const auto layout = file_layout(model);
  check_names(file, layout);
  for (const auto& [name, tensor] : layout) {
    const SafetensorsEntry& found = *file.find(name);
    if (found.dims != tensor.dims || !info(found.dtype).is_float)
      fail("'{}' tensor '{}': found {} {}, expected floating-point {}", file.path(), name,
           info(found.dtype).name, words(found.dims), words(tensor.dims));
  }
  HostTensors result;
  for (const auto& [name, tensor] : layout) {
    HostTensor whole = convert(file.read(name), model.dtype);
    if (same_as_file(tensor)) {
      result[tensor.parts[0]->name] = std::move(whole);
      continue;
    }
    for (const Param* p : tensor.parts) {
      HostTensor part(model.dtype, sizes(p->type));
      dispatch_float(model.dtype, [&]<class T>() {
        for_each_element(*p, [&](int64_t w, int64_t i) { part.as<T>()[i] = whole.as<T>()[w]; });
      });
      result[p->name] = std::move(part);
    }
  }
  return result;
}

void save_model(const Model& model, const HostTensors& parameters, const std::string& folder) {
  check_parameters(model, parameters);
  const fs::path target = check_save_target(folder);
  const fs::path fresh = path_beside(target.string());
  std::error_code error;
  if (!fs::create_directory(fresh, error))
    fail("cannot create folder '{}': {}", fresh.string(), error.message());
  try {
    HostTensors fused;
    write_safetensors((fresh / "model.safetensors").string(),
                      file_tensors(model, parameters, fused));
    if (model.config_json.empty())
      write_text((fresh / "model.plait").string(), print_model(model));
    else
      write_text((fresh / "config.json").string(),
                 config_with_dtype(model.config_json, model.dtype));
    replace_folder(fresh.string(), target.string());
  } catch (...) {
    fs::remove_all(fresh, error);
    throw;
  }
}

}  // namespace plait
