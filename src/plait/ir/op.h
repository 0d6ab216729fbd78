// OpDef: everything the compiler knows of one op. One file in ops/ per op holds its record;
// ops/table.cc lists them all.
//
// Shapes and placements come from one *rule* in the manner of an index expression:
//
//   matmul     "t k, n k -> t n"      k is contracted: splitting it gives pending sums
//   rms_norm   "t d!, d! -> t d!"     d must be whole on every rank
//   row_lse    "t v -> t ; v lse"     splitting v gives pending log-sum-exps
//   attention  "t ~h, t ~h, ..."      extents that share ~h differ in size, and are split alike
//
// A caret before an operand or result says that it is wide: f32 where the call computes in bf16
// (statistics, weights of norms, sums). Without it, all have the call's element type:
//
//   row_lse    "t v -> ^t ; v lse"
//
// A dot stands for a scalar operand or result. A factor may be split over mesh axes; every operand
// that carries it is then split, the others are whole, and the results follow: those that carry it
// are split, those that do not are pending. So one line gives the shape rule, all legal placements
// and the type of the pending result.
//
// An op may have several rules, " | " between them: other ways to split the same mathematics. All
// give the same shapes; partition takes the cheapest legal one.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plait/ir/graph.h"

namespace plait {

enum class Reduce : uint8_t { sum, max, lse };
const char* to_string(Reduce reduce);

struct Factor {
  char letter = 0;
  bool whole = false;         // '!': never split
  bool proportional = false;  // '~': sizes differ between operands, split in equal parts
};

struct Rule {
  std::vector<std::vector<Factor>> in, out;
  std::vector<bool> wide_in, wide_out;
  // Factors that some result lacks, and how their parts combine there.
  std::map<char, Reduce> contracted;
};
Rule parse_rule(std::string_view text);
std::vector<Rule> parse_rules(std::string_view text);  // at " | "
bool carries(const std::vector<Factor>& tensor, char letter);

// One tensor as a kernel sees it: a dense row-major shard and where it begins in the whole.
struct TensorView {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int rank = 0;
  std::array<int64_t, 4> dims{1, 1, 1, 1};    // sizes here
  std::array<int64_t, 4> begin{0, 0, 0, 0};   // offset of this shard in the global tensor
  std::array<int64_t, 4> global{1, 1, 1, 1};  // sizes of the whole tensor
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int64_t elements() const;
};

// With this attribute = 1, for ops that have it, the gradient of a parameter is f32 where the call
// computes in bf16: so the first of a sum needs no rounding, and no zeros to be added to.
inline constexpr const char* kWide = "wide";

struct OpDef;

struct KernelArgs {
  const Attrs* attrs = nullptr;
  std::span<const TensorView> in;
  std::span<const TensorView> out;
  void* workspace = nullptr;
  int threads = 1;            // the rank's compute threads; fixed for a run
  const OpDef* op = nullptr;  // for kernels that serve many ops
};
using Kernel = void (*)(const KernelArgs&);

// The plain reference for each arithmetic. `counted` runs on Counted (counted.h) and serves the
// test of `flops`.
struct Reference {
  Kernel f32 = nullptr, f64 = nullptr, counted = nullptr;
};

// Emits the gradient of one node into the joint graph.
class GradContext {
 public:
  virtual ~GradContext() = default;
  virtual ValueId in(size_t i) const = 0;
  virtual ValueId out(size_t i) const = 0;
  virtual ValueId d_out(size_t i) const = 0;  // kNone when that result reaches no output
  virtual bool needs(size_t i) const = 0;     // does operand i need a gradient?
  virtual const Attrs& attrs() const = 0;
  virtual std::vector<ValueId> emit(const std::string& op, const std::vector<ValueId>& operands,
                                    const Attrs& attributes = {}) = 0;
  virtual void add(size_t i, ValueId gradient) = 0;  // gradients of one operand are summed
};

// An example call for the generated test: element type f64, extents small and awkward.
struct OpSample {
  std::vector<TensorType> in;
  Attrs attrs;
  // Fills integer operands (operand, element index, elements so far) -> value; floats are drawn.
  std::function<int32_t(size_t operand, int64_t index)> integers;
  double low = -1, high = 1;   // range of the floats
  std::vector<size_t> unused;  // operands that give shape only
  bool full = true;            // does this call reach `flops`? else that is an upper bound
};

// What a fused op does, as a row of other ops on named values (fused.h).
struct Expansion;

struct OpDef {
  std::string_view name;
  std::string_view summary;  // one line for people
  // The names that a call may give: numbers, and lists of numbers with "[]" behind the name.
  std::vector<std::string_view> attributes;
  // A fused op has this instead of a rule, infer, check, grad, flops and reference: all of them
  // follow from what it expands to.
  std::shared_ptr<const Expansion> expansion;
  // The rule, see above; operand types are given so that a rule may follow their rank.
  std::string (*rule)(const Attrs&, const std::vector<TensorType>& in) = nullptr;
  // Result types where the rule cannot give them (results with factors marked ~).
  std::vector<TensorType> (*infer)(const Attrs&, const std::vector<TensorType>&) = nullptr;
  // Further conditions on operand types and attributes; throws Error.
  void (*check)(const Attrs&, const std::vector<TensorType>&) = nullptr;
  std::vector<size_t> integer_operands;  // operands of type i32
  // The result of pending sums is a pending sum, if all floating-point operands are (add, scale).
  bool additive = false;
  // The result is this signed sum of the operands: {1, 1} for add. Empty: it is no plain sum.
  std::vector<int> terms;
  std::vector<std::pair<size_t, size_t>> in_place;  // (result, operand) that share storage
  void (*grad)(GradContext&) = nullptr;
  std::string_view no_grad;  // why there is none
  // Arithmetic operations of one call on (local) types; exp, log, sqrt, tanh, erf count as one.
  int64_t (*flops)(const Attrs&, const std::vector<TensorType>&) = nullptr;
  // Scratch bytes of one call on local types by `threads` compute threads: enough for the reference
  // and for every fast kernel.
  int64_t (*workspace)(const Attrs&, const std::vector<TensorType>&, int threads) = nullptr;
  Reference reference;
  std::vector<OpSample> (*samples)() = nullptr;
  // |fast - reference| <= fast_error x epsilon x sum of |contributions|, for kernels/.
  double fast_error = 8;
  // What comes to that in bf16, by result, where a fast kernel rounds values between its steps as
  // the unfused ops do: bf16_error x half of bf16's epsilon x the largest element. Empty: nothing.
  std::span<const double> bf16_error;
};

// The element type by which a kernel is chosen: bf16 if any operand or result is, else that of the
// first result.
Dtype kernel_dtype(std::span<const TensorView> in, std::span<const TensorView> out);

// All ops, in the order of the table (ops/table.cc).
std::span<const OpDef> all_ops();
const OpDef& find_op(std::string_view name);  // throws Error naming the op

// Result types of one call; throws Error with op, operand, found and expected.
std::vector<TensorType> infer_types(const OpDef& op, const Attrs& attrs,
                                    const std::vector<TensorType>& in);

// Arithmetic operations of one call, fused ops too.
int64_t flops_of(const OpDef& op, const Attrs& attrs, const std::vector<TensorType>& in);

}  // namespace plait
