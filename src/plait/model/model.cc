#include "plait/model/model.h"

#include <functional>

#include "plait/base/digest.h"
#include "plait/base/rng.h"

namespace plait {

const Extent& Model::extent(std::string_view letter) const {
  std::string known;
  for (const Extent& e : extents) {
    if (e.name == letter) return e;
    known += (known.empty() ? "" : ", ") + e.name;
  }
  fail("model '{}': there is no extent '{}'; it has {}", name, letter, known);
}

size_t Model::param_index(std::string_view param_name) const {
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].name == param_name) return i;
  fail("model '{}': there is no parameter '{}'", name, param_name);
}

int64_t Model::parameter_count() const {
  int64_t n = 0;
  for (const Param& p : params) n = checked_add(n, p.type.elements());
  return n;
}

int64_t Model::trained_count() const {
  int64_t n = 0;
  for (const Param& p : params)
    if (!p.frozen) n = checked_add(n, p.type.elements());
  return n;
}

namespace {

using Retype = std::function<TensorType(const TensorType&)>;

// The same graph on other types of its arguments: results are inferred anew.
Graph rebuild(const Graph& old, const Retype& retype) {
  Graph g;
  g.name = old.name;
  std::vector<ValueId> now(old.values.size(), kNone);
  const auto at = [](ValueId id) { return static_cast<size_t>(id); };
  const auto declare = [&](ValueId id) {
    now[at(id)] = g.add_value(old.values[at(id)].name, retype(old.type(id)));
    return now[at(id)];
  };
  for (const ValueId id : old.inputs) g.inputs.push_back(declare(id));
  for (const ValueId id : old.params) g.params.push_back(declare(id));
  for (const Node& node : old.nodes) {
    std::vector<ValueId> in;
    std::vector<std::string> names;
    for (const ValueId id : node.in) in.push_back(now[at(id)]);
    for (const ValueId id : node.out) names.push_back(old.values[at(id)].name);
    const auto out = g.emit(node.op, in, node.attrs, node.phase, names);
    for (size_t i = 0; i < out.size(); ++i) now[at(node.out[i])] = out[i];
  }
  for (const ValueId id : old.outputs) g.outputs.push_back(now[at(id)]);
  return g;
}

void rebuild(Model& m, const Retype& retype, const Retype& retype_param) {
  for (Param& p : m.params) p.type = retype_param(p.type);
  for (Graph& g : m.blocks) g = rebuild(g, retype);
  for (const ModelValueId id : m.inputs) {
    Value& v = m.values[static_cast<size_t>(id)];
    v.type = retype(v.type);
  }
  for (const BlockUse& use : m.uses) {
    const Graph& g = m.blocks[use.block];
    for (size_t i = 0; i < use.outputs.size(); ++i)
      m.values[static_cast<size_t>(use.outputs[i])].type = g.type(g.outputs[i]);
  }
}

}  // namespace

Model with_dtype(Model model, Dtype dtype) {
  if (!is_computed_float(dtype))
    fail("model '{}': found element type {}, expected f32, f64 or bf16", model.name,
         info(dtype).name);
  model.dtype = dtype;
  const auto retype = [&](TensorType type) {
    if (info(type.dtype).is_float) type.dtype = float_dtype(model, type.dims.size());
    return type;
  };
  rebuild(model, retype, [&](TensorType type) {
    type.dtype = param_dtype(model);
    return type;
  });
  check_model(model);
  return model;
}

Model with_extent(Model model, std::string_view letter, int64_t size, int64_t unit) {
  model.extent(letter);  // throws when there is none
  if (unit < 1 || size < 1 || size % unit != 0)
    fail("model '{}': extent '{}' of {} in units of {}; needs a multiple of the unit", model.name,
         letter, size, unit);
  const Extent changed{std::string(letter), size, unit};
  for (Extent& e : model.extents)
    if (e.name == letter) e = changed;
  const auto params = model.params;
  const Retype retype = [&](TensorType type) {
    for (Extent& e : type.dims)
      if (e.name == letter) e = changed;
    return type;
  };
  for (Param& p : model.params)  // a parameter that fills its file tensor still does
    if (p.file.total_rows == p.rows() && !p.type.dims.empty() && p.type.dims[0].name == letter)
      p.file.total_rows = size;
  rebuild(model, retype, retype);
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].type != model.params[i].type) model.config_json.clear();  // it says otherwise
  check_model(model);
  return model;
}

HostTensors initial_parameters(const Model& model, uint64_t seed) {
  HostTensors result;
  for (const Param& p : model.params) {
    std::vector<int64_t> dims;
    for (const Extent& e : p.type.dims) dims.push_back(e.size);
    HostTensor tensor(p.type.dtype, dims);
    const auto substream = static_cast<uint32_t>(digest(p.name));
    dispatch_float(p.type.dtype, [&]<class T>() {
      T* values = tensor.as<T>();
      const int64_t n = tensor.elements();
      for (int64_t i = 0; i < n; ++i) {
        double value = p.init.kind == Init::Kind::ones ? 1 : 0;
        if (p.init.kind == Init::Kind::normal)
          value = p.init.deviation *
                  normal(seed, Stream::parameters, static_cast<uint64_t>(i), substream);
        if (p.init.kind == Init::Kind::uniform)
          value = p.init.deviation *
                  (2 * uniform(seed, Stream::parameters, static_cast<uint64_t>(i), substream) - 1);
        values[i] = static_cast<T>(value);
      }
    });
    result[p.name] = std::move(tensor);
  }
  return result;
}

}  // namespace plait
