// A model as plait sees it: parameters, which the model owns; blocks, each a graph written once
// for one device; and the uses of the blocks in order. Two uses of one parameter are how tied
// embeddings are said. The same thing as text (print_model, parse_model):
//
//   model tiny
//   dtype f32
//   extent T = 192 by 24                 # tokens: slots of 24, never cut
//   extent D = 32
//   input tokens i32[T]
//   param embed.weight [V, D] normal 0.02
//   block embed (tokens i32[T]) (table float[V, D]) {
//     x = embedding(table, tokens)
//     return x
//   }
//   h0 = embed (tokens) (embed.weight) as embed
//   ...
//   l = head (h2, labels, weights) (norm.weight, embed.weight) as head
//   loss l
//
// `float` is the model's own element type; where that is bf16, tensors of one dimension or none
// (weights of norms, biases, weights of the loss) and all parameters are f32 all the same, and
// blocks get copies of the larger parameters in bf16. README.md has the whole grammar.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/base/host_tensor.h"
#include "plait/ir/graph.h"

namespace plait {

struct Init {
  enum class Kind : uint8_t { zeros, ones, normal, uniform } kind = Kind::normal;
  double deviation = 0.02;  // uniform: the bound, values lie in [-bound, bound)
};

// Where a parameter lies in Hugging Face's files: rows [row, row + rows of the parameter) of the
// tensor, after transposing it when `transposed` (GPT-2's Conv1D stores [in, out], and fuses q, k
// and v).
struct FileSlice {
  std::string tensor;
  bool transposed = false;
  int64_t row = 0;
  int64_t total_rows = 0;  // of the whole tensor, after transposing
};

struct Param {
  std::string name;
  TensorType type;
  Init init;
  FileSlice file;       // tensor == name and all rows unless a family says otherwise
  bool frozen = false;  // not trained: no gradient, no optimizer state, no part in the norm
  int64_t rows() const { return type.dims.empty() ? 1 : type.dims[0].size; }
};

using ModelValueId = int32_t;

struct BlockUse {
  std::string name;  // "layers.3": for people and messages
  size_t block = 0;  // index into Model::blocks
  std::vector<ModelValueId> inputs, outputs;
  std::vector<size_t> params;  // index into Model::params, parallel to the block's params
};

// What a family's files may hold beside or instead of the parameters' names. In patterns `*` stands
// for one part between dots.
struct FileRules {
  std::string optional_prefix;       // files may lack it: "transformer."; then all names do
  std::vector<std::string> ignored;  // patterns of tensors that are no parameters: masks, tables
};

// Low-rank adapters (lora.h), in the words of PEFT's adapter_config.json.
struct LoraConfig {
  int64_t rank = 8;
  double alpha = 8;
  // Module names: all of a name or its last parts ("q_proj", "mlp.c_proj"); or {"all-linear"}.
  std::vector<std::string> targets;
  bool rslora = false;                       // scale by alpha / sqrt(rank), not alpha / rank
  std::vector<std::string> modules_to_save;  // of the base model, trained whole
  std::string base_model;                    // base_model_name_or_path: what the adapters are for
  double dropout = 0;  // lora_dropout of the file: kept for writing it again, not applied
  double scale() const;
};

// A value that programs hand out like the logits, as the state `name`: "token_loss".
struct ModelResult {
  std::string name;
  ModelValueId value = kNone;
};

struct Model {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<Extent> extents;       // the named ones, in order of declaration
  std::vector<Value> values;         // model inputs and results of uses
  std::vector<ModelValueId> inputs;  // assigned by the driver: tokens, positions, labels, ...
  std::vector<Param> params;
  std::vector<Graph> blocks;    // forward graphs
  std::vector<BlockUse> uses;   // in topological order
  ModelValueId loss = kNone;    // a scalar: the sum over the micro-batch; kNone: inference
  ModelValueId logits = kNone;  // [T, V], for inference
  std::vector<ModelResult> results;
  FileRules files;                 // of its family
  std::string config_json;         // the Hugging Face config.json it came from, or empty
  std::vector<std::string> notes;  // where it may differ from what the reader expects, in words
  std::optional<LoraConfig> lora;  // of a model that with_lora made; not part of the text

  const Extent& extent(std::string_view letter) const;  // throws when there is none
  size_t param_index(std::string_view param_name) const;
  int64_t parameter_count() const;
  int64_t trained_count() const;  // of parameters that are not frozen
};

// Bounds of every model; they keep a file from asking for absurd work.
inline constexpr int64_t kMaxExtent = int64_t{1} << 40;
inline constexpr size_t kMaxDims = 8;
inline constexpr size_t kMaxNodes = 1'000'000;  // of all blocks together; also the most uses

// Throws Error when the pieces do not fit: types of arguments, values used before they are
// made, a floating-point value that feeds two uses (not supported yet), an unused parameter.
void check_model(const Model& model);

std::string print_model(const Model& model);
Model parse_model(std::string_view text, const std::string& source);  // checks it too

// What `float` stands for, by the number of dimensions; and the type of parameters.
inline Dtype float_dtype(const Model& model, size_t dims) {
  return dims < 2 ? wide(model.dtype) : model.dtype;
}
inline Dtype param_dtype(const Model& model) { return wide(model.dtype); }

Model with_dtype(Model model, Dtype dtype);
// Another size for a named extent, wherever it stands ("T" for batches).
Model with_extent(Model model, std::string_view letter, int64_t size, int64_t unit);

// Parameter values drawn from (seed, parameter name, element): the same in every layout.
HostTensors initial_parameters(const Model& model, uint64_t seed);

}  // namespace plait
