#include "reference.h"

#include <algorithm>
#include <cmath>

#include "plait/ir/fused.h"

namespace plait {

namespace {

using Values = std::map<ValueId, HostTensor>;

HostTensor zeros(const TensorType& type) {
  std::vector<int64_t> dims;
  for (const Extent& e : type.dims) dims.push_back(e.size);
  return HostTensor(type.dtype, dims);
}

TensorView view(HostTensor& t) {
  TensorView v;
  v.data = t.data.data();
  v.dtype = t.dtype;
  v.rank = static_cast<int>(t.dims.size());
  std::copy(t.dims.begin(), t.dims.end(), v.dims.begin());
  v.global = v.dims;
  return v;
}

void run_node(const Graph& graph, const Node& node, Values& values) {
  const OpDef& op = find_op(node.op);
  std::vector<TensorView> in, out;
  std::vector<TensorType> types;
  for (ValueId v : node.in) {
    in.push_back(view(values.at(v)));
    types.push_back(graph.type(v));
  }
  for (ValueId v : node.out) {
    values[v] = zeros(graph.type(v));
    out.push_back(view(values[v]));
  }
  const int64_t bytes = op.workspace == nullptr ? 0 : op.workspace(node.attrs, types, 1);
  std::vector<double> workspace(static_cast<size_t>(bytes / 8 + 8));
  KernelArgs args{&node.attrs, in, out, workspace.data()};
  args.op = &op;
  run_reference(args);
}

void add_to(HostTensor& sum, const HostTensor& term) {
  dispatch_float(sum.dtype, [&]<class T>() {
    for (int64_t i = 0; i < sum.elements(); ++i) sum.as<T>()[i] += term.as<T>()[i];
  });
}

// |values| of the operands of the node that makes `v`, through the node: for sums of products.
HostTensor absolute(const Graph& graph, ValueId v, const Values& values) {
  for (const Node& node : graph.nodes) {
    if (std::find(node.out.begin(), node.out.end(), v) == node.out.end()) continue;
    if (node.op != "matmul" && node.op != "sum_rows" && node.op != "embedding_grad") break;
    Values positive;
    for (ValueId in : node.in) {
      positive[in] = values.at(in);
      if (positive[in].dtype == Dtype::i32) continue;
      dispatch_float(positive[in].dtype, [&]<class T>() {
        for (int64_t i = 0; i < positive[in].elements(); ++i)
          positive[in].as<T>()[i] = std::abs(positive[in].as<T>()[i]);
      });
    }
    run_node(graph, node, positive);
    return positive.at(v);
  }
  return values.at(v);
}

}  // namespace

HostTensor file_part(const Param& param, const HostTensor& whole) {
  const FileSlice& file = param.file;
  std::vector<int64_t> dims;
  for (const Extent& e : param.type.dims) dims.push_back(e.size);
  HostTensor part(Dtype::f64, dims);
  const int64_t columns = dims.size() == 1 ? 1 : dims[1];
  const int64_t rows_in_file = file.transposed ? whole.dims[1] : whole.dims[0];
  for (int64_t r = 0; r < dims[0]; ++r)
    for (int64_t c = 0; c < columns; ++c)
      part.as<double>()[r * columns + c] = whole.at(
          file.transposed ? c * rows_in_file + file.row + r : (file.row + r) * columns + c);
  return part;
}

double norm(const HostTensor& tensor) {
  double sum = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) sum += tensor.at(i) * tensor.at(i);
  return std::sqrt(sum);
}

double distance(const HostTensor& a, const HostTensor& b) {
  PLAIT_CHECK(a.dims == b.dims, "tensors of different shapes are compared");
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    const double d = a.at(i) - b.at(i);
    sum += d * d;
  }
  return std::sqrt(sum);
}

ReferenceStep reference_step(const Model& model, const HostTensors& parameters,
                             const Batch& batch) {
  std::vector<Graph> joint;
  for (const Graph& block : model.blocks) joint.push_back(differentiate(block));
  ReferenceStep result;
  HostTensors absolute_sums;
  for (const Param& p : model.params) {
    if (p.frozen) continue;
    result.gradients[p.name] = zeros(p.type);
    absolute_sums[p.name] = zeros(p.type);
  }
  for (const HostTensors& inputs : batch.microbatches) {
    std::map<ModelValueId, HostTensor> values, d_values;
    for (ModelValueId v : model.inputs)
      values[v] = inputs.at(model.values[static_cast<size_t>(v)].name);
    std::vector<Values> inside(model.uses.size());
    for (size_t u = 0; u < model.uses.size(); ++u) {
      const BlockUse& use = model.uses[u];
      const Graph& g = joint[use.block];
      for (size_t i = 0; i < use.inputs.size(); ++i)
        inside[u][g.inputs[i]] = values.at(use.inputs[i]);
      for (size_t i = 0; i < use.params.size(); ++i)
        inside[u][g.params[i]] = parameters.at(model.params[use.params[i]].name);
      for (const Node& n : g.nodes)
        if (n.phase == Phase::F) run_node(g, n, inside[u]);
      for (size_t i = 0; i < use.outputs.size(); ++i)
        values[use.outputs[i]] = inside[u].at(g.outputs[i]);
    }
    result.loss += values.at(model.loss).at(0);
    HostTensor one = zeros({model.dtype, {}});
    dispatch_float(model.dtype, [&]<class T>() { one.as<T>()[0] = 1; });
    d_values[model.loss] = one;
    for (size_t u = model.uses.size(); u-- > 0;) {
      const BlockUse& use = model.uses[u];
      const Graph& g = joint[use.block];
      for (size_t i = 0; i < use.outputs.size(); ++i)
        if (g.d_outputs[i] != kNone) inside[u][g.d_outputs[i]] = d_values.at(use.outputs[i]);
      for (const Node& n : g.nodes)
        if (n.phase != Phase::F) run_node(g, n, inside[u]);
      for (size_t i = 0; i < use.inputs.size(); ++i)
        if (g.d_inputs[i] != kNone) d_values[use.inputs[i]] = inside[u].at(g.d_inputs[i]);
      for (size_t i = 0; i < use.params.size(); ++i) {
        if (g.d_params[i] == kNone || model.params[use.params[i]].frozen) continue;
        const std::string& name = model.params[use.params[i]].name;
        add_to(result.gradients[name], inside[u].at(g.d_params[i]));
        add_to(absolute_sums[name], absolute(g, g.d_params[i], inside[u]));
      }
    }
  }
  for (const auto& [name, gradient] : result.gradients) {
    result.grad_sum_squares += norm(gradient) * norm(gradient);
    result.absolute_norms[name] = norm(absolute_sums.at(name));
  }
  return result;
}

void reference_sgd(HostTensors& parameters, const HostTensors& gradients, double rate) {
  for (auto& entry : parameters) {
    if (!gradients.contains(entry.first)) continue;  // frozen
    HostTensor& p = entry.second;
    const HostTensor& g = gradients.at(entry.first);
    dispatch_float(p.dtype, [&]<class T>() {
      for (int64_t i = 0; i < p.elements(); ++i)
        p.as<T>()[i] -= static_cast<T>(rate) * g.as<T>()[i];
    });
  }
}

}  // namespace plait
