// check_model: whether the pieces of a model fit.
#include <cmath>
#include <set>

#include "plait/ir/op.h"
#include "plait/model/model.h"

namespace plait {

namespace {

// Names are printed between quotes where needed, and appear in messages.
void check_name(std::string_view kind, std::string_view name) {
  bool good = !name.empty();
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '"') good = false;
  if (!good) fail("{} '{}': a name needs characters, none of them control or quote", kind, name);
}

class Names {
 public:
  explicit Names(std::string kind) : kind_(std::move(kind)) {}
  void add(const std::string& name) {
    check_name(kind_, name);
    if (!seen_.insert(name).second) fail("{} '{}' is declared twice", kind_, name);
  }

 private:
  std::string kind_;
  std::set<std::string> seen_;
};

void check_extent(const Extent& e) {
  if (e.size < 1 || e.size > kMaxExtent)
    fail("extent '{}': size {} is outside 1 to {}", e.name, e.size, kMaxExtent);
  if (e.unit < 1 || e.size % e.unit != 0)
    fail("extent '{}': size {} is no multiple of the unit {}", e.name, e.size, e.unit);
}

// The type of something declared: its extents are the model's, or plain numbers.
void check_type(const Model& model, const std::string& what, const TensorType& type,
                Dtype expected) {
  if (type.dtype != Dtype::i32 && type.dtype != expected)
    fail("{}: found {}, expected i32 or the model's {}", what, info(type.dtype).name,
         info(expected).name);
  if (type.dims.size() > kMaxDims)
    fail("{}: {} dimensions, expected at most {}", what, type.dims.size(), kMaxDims);
  for (const Extent& e : type.dims) {
    check_extent(e);
    if (e.name.empty() && e.unit != 1) fail("{}: a dimension with a unit needs a name", what);
    if (!e.name.empty() && model.extent(e.name) != e)
      fail("{}: extent {} differs from the model's", what, to_string(type));
  }
  type.bytes();  // throws when it overflows
}

class BlockCheck {
 public:
  BlockCheck(const Model& model, const Graph& graph)
      : model_(model), g_(graph), made_(graph.values.size()) {}

  void run() {
    Names names("value");
    for (const Value& v : g_.values) names.add(v.name);
    for (const ValueId id : g_.inputs) declare(id);
    for (const ValueId id : g_.params) {
      declare(id);
      if (g_.type(id).dtype == Dtype::i32) fail("parameter '{}' is of integers", name(id));
    }
    for (const Node& node : g_.nodes) check_node(node);
    for (size_t i = 0; i < made_.size(); ++i)
      if (!made_[i]) fail("value '{}' is never made", g_.values[i].name);
    if (g_.outputs.empty()) fail("it returns nothing");
    std::set<ValueId> returned;
    for (const ValueId id : g_.outputs)
      if (need(id), !returned.insert(id).second) fail("'{}' is returned twice", name(id));
    if (!g_.d_outputs.empty() || !g_.d_inputs.empty() || !g_.d_params.empty())
      fail("a model holds forward graphs, and this one has gradients");
  }

 private:
  const std::string& name(ValueId id) const { return g_.values[static_cast<size_t>(id)].name; }

  void make(ValueId id) {
    if (id < 0 || static_cast<size_t>(id) >= made_.size()) fail("there is no value {}", id);
    if (made_[static_cast<size_t>(id)]) fail("value '{}' is made twice", name(id));
    made_[static_cast<size_t>(id)] = true;
  }

  void declare(ValueId id) {
    make(id);
    check_type(model_, fmt::format("value '{}'", name(id)), g_.type(id),
               float_dtype(model_, g_.type(id).dims.size()));
  }

  void need(ValueId id) const {
    if (id < 0 || static_cast<size_t>(id) >= made_.size()) fail("there is no value {}", id);
    if (!made_[static_cast<size_t>(id)]) fail("value '{}' is used before it is made", name(id));
  }

  void check_node(const Node& node) {
    std::vector<TensorType> types, results;
    for (const ValueId id : node.in) {
      need(id);
      types.push_back(g_.type(id));
    }
    for (const auto& [key, value] : node.attrs)
      if (!value.is_finite()) fail("op '{}': attribute {} is {}", node.op, key, to_string(value));
    if (node.phase != Phase::F)
      fail("op '{}': phase {}, expected F", node.op, to_string(node.phase));
    results = infer_types(find_op(node.op), node.attrs, types);
    if (results.size() != node.out.size())
      fail("op '{}': found {} results, expected {}", node.op, node.out.size(), results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      make(node.out[i]);
      results[i].bytes();
      if (g_.type(node.out[i]) != results[i])
        fail("value '{}': found {}, expected {}", name(node.out[i]),
             to_string(g_.type(node.out[i])), to_string(results[i]));
    }
  }

  const Model& model_;
  const Graph& g_;
  std::vector<bool> made_;
};

void check_param(const Model& model, const Param& p) {
  check_type(model, "its type", p.type, param_dtype(model));
  if (p.type.dtype == Dtype::i32) fail("it is of integers, expected floating point");
  if (!std::isfinite(p.init.deviation) || p.init.deviation < 0)
    fail("deviation {}, expected a number from 0", p.init.deviation);
  check_name("file tensor", p.file.tensor);
  if (p.file.row < 0 || p.file.total_rows > kMaxExtent || p.file.row > p.file.total_rows - p.rows())
    fail("{} rows from row {} of {} in file tensor '{}' do not fit", p.rows(), p.file.row,
         p.file.total_rows, p.file.tensor);
  if (p.file.transposed && p.type.dims.size() != 2)
    fail("{} dimensions are transposed in the file, expected 2", p.type.dims.size());
}

class UseCheck {
 public:
  explicit UseCheck(const Model& model)
      : m_(model), made_(model.values.size()), readers_(model.values.size()) {}

  void run() {
    for (const ModelValueId id : m_.inputs) {
      make(id);
      check_type(m_, fmt::format("input '{}'", value(id).name), value(id).type,
                 float_dtype(m_, value(id).type.dims.size()));
    }
    const auto inputs_made = made_;
    std::vector<bool> used(m_.params.size());
    for (const BlockUse& use : m_.uses) check_use(use, used);
    for (size_t i = 0; i < made_.size(); ++i)
      if (!made_[i]) fail("value '{}' is never made", m_.values[i].name);
    for (size_t i = 0; i < used.size(); ++i)
      if (!used[i]) fail("parameter '{}' is not used by any block", m_.params[i].name);
    check_result("loss", m_.loss, 0, inputs_made);
    check_result("logits", m_.logits, 2, inputs_made);
    // States of a program that a result would be taken for.
    Names names("result");
    for (const char* taken : {"loss", "logits", "grad_sum_squares"}) names.add(taken);
    for (const ModelResult& r : m_.results) {
      names.add(r.name);
      if (r.name.find('/') != std::string::npos)
        fail("result '{}': its name holds a '/', which marks parameters' states", r.name);
      if (r.value == kNone) fail("result '{}' has no value", r.name);
      check_result(r.name, r.value, value(r.value).type.dims.size(), inputs_made);
    }
  }

 private:
  const Value& value(ModelValueId id) const {
    if (id < 0 || static_cast<size_t>(id) >= made_.size()) fail("there is no value {}", id);
    return m_.values[static_cast<size_t>(id)];
  }

  void make(ModelValueId id) {
    if (made_.at(static_cast<size_t>(id))) fail("value '{}' is made twice", value(id).name);
    made_[static_cast<size_t>(id)] = true;
  }

  void read(ModelValueId id) {
    const Value& v = value(id);
    if (!made_[static_cast<size_t>(id)]) fail("value '{}' is used before it is made", v.name);
    if (++readers_[static_cast<size_t>(id)] > 1 && v.type.dtype != Dtype::i32)
      fail(
          "value '{}' feeds two uses, which is not supported yet for floating-point values; "
          "join the two blocks",
          v.name);
  }

  void match(std::string_view what, const TensorType& found, const Value& expected) const {
    if (found != expected.type)
      fail("{} '{}': found {}, expected {}", what, expected.name, to_string(found),
           to_string(expected.type));
  }

  void check_use(const BlockUse& use, std::vector<bool>& used) {
    if (use.block >= m_.blocks.size()) fail("use '{}': there is no block {}", use.name, use.block);
    const Graph& g = m_.blocks[use.block];
    const auto arity = [&](std::string_view what, size_t found, size_t expected) {
      if (found != expected)
        fail("use '{}' of block '{}': found {} {}, expected {}", use.name, g.name, found, what,
             expected);
    };
    arity("inputs", use.inputs.size(), g.inputs.size());
    arity("parameters", use.params.size(), g.params.size());
    arity("results", use.outputs.size(), g.outputs.size());
    const auto formal = [&](ValueId id) { return g.values[static_cast<size_t>(id)]; };
    try {
      for (size_t i = 0; i < use.inputs.size(); ++i) {
        read(use.inputs[i]);
        match("input", value(use.inputs[i]).type, formal(g.inputs[i]));
      }
      for (size_t i = 0; i < use.params.size(); ++i) {
        if (use.params[i] >= used.size()) fail("there is no parameter {}", use.params[i]);
        used[use.params[i]] = true;
        // A block may compute with a narrower copy of a parameter.
        TensorType given = m_.params[use.params[i]].type;
        given.dtype = float_dtype(m_, given.dims.size());
        match("parameter", given, formal(g.params[i]));
      }
      for (size_t i = 0; i < use.outputs.size(); ++i) {
        match("result", value(use.outputs[i]).type, formal(g.outputs[i]));
        make(use.outputs[i]);
      }
    } catch (const Error& e) {
      fail("use '{}' of block '{}': {}", use.name, g.name, e.what());
    }
  }

  void check_result(std::string_view what, ModelValueId id, size_t rank,
                    const std::vector<bool>& inputs_made) {
    if (id == kNone) return;
    read(id);
    const Value& v = value(id);
    if (inputs_made[static_cast<size_t>(id)] || v.type.dtype != float_dtype(m_, rank) ||
        v.type.dims.size() != rank)
      fail("{} '{}': found {}, expected a result of {} with {} dimensions", what, v.name,
           to_string(v.type), info(float_dtype(m_, rank)).name, rank);
  }

  const Model& m_;
  std::vector<bool> made_;
  std::vector<int> readers_;
};

void check_pieces(const Model& m) {
  check_name("model", m.name);
  if (!is_computed_float(m.dtype))
    fail("element type {}, expected f32, f64 or bf16", info(m.dtype).name);
  Names extents("extent"), values("value"), params("parameter"), blocks("block"), uses("use");
  for (const Extent& e : m.extents) extents.add(e.name), check_extent(e);
  for (const Value& v : m.values) values.add(v.name);
  for (const Param& p : m.params) {
    params.add(p.name);
    try {
      check_param(m, p);
    } catch (const Error& e) {
      fail("parameter '{}': {}", p.name, e.what());
    }
  }
  size_t nodes = 0;
  for (const Graph& g : m.blocks) {
    blocks.add(g.name);
    nodes += g.nodes.size();
    if (nodes > kMaxNodes || m.uses.size() > kMaxNodes)
      fail("more than {} nodes or uses", kMaxNodes);
    try {
      BlockCheck(m, g).run();
    } catch (const Error& e) {
      fail("block '{}': {}", g.name, e.what());
    }
  }
  for (const BlockUse& use : m.uses) uses.add(use.name);
  UseCheck(m).run();
}

}  // namespace

void check_model(const Model& model) {
  try {
    check_pieces(model);
  } catch (const Error& e) {
    fail("model '{}': {}", model.name, e.what());
  }
}

}  // namespace plait
