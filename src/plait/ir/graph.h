// The IR: tensor types, nodes in single-assignment form, and the graph of one block.
//
// A graph is written for one device. Extents carry the shape letters of the model (T tokens,
// D width, H heads x head size, G key/value heads x head size, F feed-forward width,
// V vocabulary, ...) and the *unit* below which they are never cut: the head size, a token
// slot. A plan speaks of letters; partition and kernels only ever see sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plait/base/dtype.h"

namespace plait {

class Lexer;  // base/text.h

// `size` is the size in force; an extent that varies from step to step (T) is sized at its bound.
struct Extent {
  std::string name;  // a shape letter, or empty
  int64_t size = 0;
  int64_t unit = 1;  // divides size
  int64_t units() const { return size / unit; }
  bool same_size(const Extent& other) const { return size == other.size && unit == other.unit; }
  bool operator==(const Extent&) const = default;
};

struct TensorType {
  Dtype dtype = Dtype::f32;
  std::vector<Extent> dims;
  int64_t elements() const;
  int64_t bytes() const { return dtype_bytes(dtype, elements()); }
  bool operator==(const TensorType&) const = default;
};
std::string to_string(const TensorType& type);  // "f32[T=192/24, D=32]"

using ValueId = int32_t;
inline constexpr ValueId kNone = -1;

// The value of an attribute: a number, or a list of numbers ("[1 0.5]" in text).
class Attr {
 public:
  Attr(double number = 0) : number_(number) {}  // NOLINT: {{"eps", 1e-5}}
  Attr(std::vector<double> list) : is_list_(true), list_(std::move(list)) {}  // NOLINT: likewise
  bool is_list() const { return is_list_; }
  double number() const;                    // throws when it is a list
  const std::vector<double>& list() const;  // throws when it is a number
  bool is_finite() const;                   // all of it
  bool operator==(const Attr&) const = default;

 private:
  bool is_list_ = false;
  double number_ = 0;
  std::vector<double> list_;
};
std::string to_string(const Attr& attr);
Attr parse_attr(Lexer& in);

using Attrs = std::map<std::string, Attr>;
double attr(const Attrs& attrs, const std::string& name);  // throws when it is missing
double attr_or(const Attrs& attrs, const std::string& name, double fallback);
const std::vector<double>* list_attr(const Attrs& attrs, const std::string& name);  // or nullptr

// F forward, B input gradient, W weight gradient, U update. B and W are separate so that a
// schedule may place them apart.
enum class Phase : uint8_t { F, B, W, U };
const char* to_string(Phase phase);

struct Value {
  std::string name;
  TensorType type;
};

struct Node {
  std::string op;
  std::vector<ValueId> in;
  std::vector<ValueId> out;
  Attrs attrs;
  Phase phase = Phase::F;
};

// Nodes are in topological order. `inputs` and `params` are assigned from outside. After
// differentiate() the graph also holds B and W nodes; then d_outputs (assigned from outside)
// and d_inputs, d_params (results) run parallel to outputs, inputs and params, with kNone where
// there is no gradient.
struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs, params, outputs;
  std::vector<ValueId> d_outputs, d_inputs, d_params;

  ValueId add_value(std::string value_name, TensorType type);
  const TensorType& type(ValueId id) const { return values.at(static_cast<size_t>(id)).type; }
  // Appends a node; result types come from the op's shape rule. Throws on a type error.
  std::vector<ValueId> emit(const std::string& op, const std::vector<ValueId>& in,
                            const Attrs& attrs = {}, Phase phase = Phase::F,
                            const std::vector<std::string>& names = {});
  ValueId emit1(const std::string& op, const std::vector<ValueId>& in, const Attrs& attrs = {},
                Phase phase = Phase::F, const std::string& result_name = {});
};

// Extends a forward graph by its gradient: B nodes for everything an input gradient needs,
// W nodes for what only parameter gradients need. `input_needs` and `param_needs` say which inputs
// and parameters need a gradient (left out: all floating-point ones); no node serves any other, and
// an output that depends on none of them has no d_output. Throws when an op on the way has no
// gradient, with the op's own reason.
Graph differentiate(const Graph& forward, std::vector<bool> input_needs = {},
                    std::vector<bool> param_needs = {});

// What of the forward pass is computed again in the backward pass instead of kept.
//   none       every result that B or W read is kept from F on
//   full       only the block's inputs are kept
//   selective  results that took much arithmetic for their bytes are kept (products, attention);
//              the others (norms, activations, rotary positions) are computed again
enum class Recompute : uint8_t { none, full, selective };
const char* to_string(Recompute how);

// Rewrites a differentiated graph: B and W nodes read copies, named "NAME again", of forward
// results that are not kept. A copy is made right before its first reader, once: what both B and W
// read is made in B and kept until W, even when a schedule puts the two apart. (Where W of a
// pipeline rank follows its B at once, programs go block by block, so only one block's are kept.)
Graph recompute(const Graph& joint, Recompute how);

}  // namespace plait
