#include "hold.h"

#include <gtest/gtest.h>

#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "plait/base/half.h"
#include "plait/base/rng.h"
#include "plait/ir/fused.h"
#include "plait/kernels/cpu/micro_bf16.h"

namespace plait {

namespace {

using Values = std::vector<std::vector<double>>;

// Operands and results that stay f32 in a bf16 call.
struct Wide {
  std::vector<size_t> in, out;
};

bool has(const std::vector<size_t>& list, size_t i) {
  return std::find(list.begin(), list.end(), i) != list.end();
}

// Ops of updates take gradients of either type into states that are f32.
const std::map<std::string_view, Wide>& wide_in_updates() {
  static const std::map<std::string_view, Wide> wide = {
      {"dot", {{}, {0}}},
      {"sum_squares", {{}, {0}}},
      {"sum_along", {{}, {0}}},
      {"adamw", {{0, 2, 3, 4, 5}, {0, 1, 2}}},
      {"sgd", {{0, 2, 3}, {0}}},
      {"sgd_momentum", {{0, 2, 3, 4}, {0, 1}}},
      {"adafactor_moment", {{0, 1, 2, 3}, {0}}},
      {"adafactor_direction", {{1, 2, 3, 4}, {0}}},
      {"adafactor_whole", {{1, 2}, {0}}},
      {"adafactor_step", {{0, 1, 2, 3, 4, 5}, {0}}},
      {"muon_momentum", {{0, 2}, {0, 1}}},
      {"muon_step", {{0, 1, 2, 3}, {0}}},
  };
  return wide;
}

// By the op's rule; of a fused op, by the rules of the row.
Wide wide_of(const OpDef& op, const Attrs& attrs, const std::vector<TensorType>& in) {
  if (const auto known = wide_in_updates().find(op.name); known != wide_in_updates().end())
    return known->second;
  Wide wide;
  if (op.expansion == nullptr) {
    const Rule rule = parse_rules(op.rule(attrs, in)).front();
    for (size_t i = 0; i < rule.wide_in.size(); ++i)
      if (rule.wide_in[i]) wide.in.push_back(i);
    for (size_t i = 0; i < rule.wide_out.size(); ++i)
      if (rule.wide_out[i]) wide.out.push_back(i);
    return wide;
  }
  const Expansion& e = *op.expansion;
  const Graph g = expand(op, attrs, in);
  std::vector<bool> is_wide(e.names.size(), false);
  std::vector<Wide> own;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    std::vector<TensorType> types;
    for (const ValueId v : g.nodes[n].in) types.push_back(g.type(v));
    own.push_back(wide_of(find_op(g.nodes[n].op), g.nodes[n].attrs, types));
    for (const size_t i : own[n].in) is_wide[e.nodes[n].in[i]] = true;
  }
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    // Element-wise ops on columns of statistics are wide because their operands are.
    const std::vector<size_t>& from = e.nodes[n].in;
    const bool all = own[n].in.empty() &&
                     std::all_of(from.begin(), from.end(), [&](size_t v) { return is_wide[v]; });
    for (size_t i = 0; i < e.nodes[n].out.size(); ++i)
      is_wide[e.nodes[n].out[i]] = all || has(own[n].out, i);
  }
  for (size_t i = 0; i < e.operands; ++i)
    if (is_wide[i]) wide.in.push_back(i);
  for (size_t i = 0; i < e.results.size(); ++i)
    if (is_wide[e.results[i]]) wide.out.push_back(i);
  return wide;
}

Dtype stored(Dtype type, Dtype narrow, bool wide) {
  if (type == Dtype::i32 || narrow == Dtype::f64) return type == Dtype::i32 ? type : narrow;
  return wide ? Dtype::f32 : narrow;
}

double as_stored(double value, Dtype dtype) {
  if (dtype == Dtype::f32) return static_cast<float>(value);
  if (dtype == Dtype::bf16) return bf16_value_f64(bf16_bits(value));
  return value;
}

void write(const TensorView& to, const std::vector<double>& values) {
  for (size_t k = 0; k < values.size(); ++k) {
    if (to.dtype == Dtype::i32) to.as<int32_t>()[k] = static_cast<int32_t>(values[k]);
    if (to.dtype == Dtype::f32) to.as<float>()[k] = static_cast<float>(values[k]);
    if (to.dtype == Dtype::f64) to.as<double>()[k] = values[k];
    if (to.dtype == Dtype::bf16) to.as<uint16_t>()[k] = bf16_bits(values[k]);
  }
}

std::vector<double> read(const TensorView& from) {
  std::vector<double> values;
  for (int64_t k = 0; k < from.elements(); ++k) {
    if (from.dtype == Dtype::f32) values.push_back(static_cast<double>(from.as<float>()[k]));
    if (from.dtype == Dtype::f64) values.push_back(from.as<double>()[k]);
    if (from.dtype == Dtype::bf16) values.push_back(bf16_value_f64(from.as<uint16_t>()[k]));
  }
  return values;
}

// Poisoned memory that knows whether anything was written behind its end.
class Poisoned {
 public:
  explicit Poisoned(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)), memory_(bytes_ + 2 * kAlign, std::byte{0xff}) {}
  void* data() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (kAlign - at % kAlign) % kAlign;
  }
  bool whole() {
    const auto* end = static_cast<std::byte*>(data()) + bytes_;
    return std::all_of(end, static_cast<const std::byte*>(memory_.data() + memory_.size()),
                       [](std::byte b) { return b == std::byte{0xff}; });
  }

 private:
  static constexpr size_t kAlign = 64;
  size_t bytes_;
  std::vector<std::byte> memory_;
};

// Are the results sums of products, so that their contributions are those of absolute values?
bool sums_products(std::string_view op) {
  for (const std::string_view name :
       {"matmul", "dot", "sum_rows", "sum_along", "embedding_grad", "rms_norm_grad_w"})
    if (op == name) return true;
  return false;
}

// Half a unit in the last place that a bf16 number of about this size has.
double half_ulp_bf16(double size) { return size == 0 ? 0 : std::ldexp(1, std::ilogb(size) - 8); }

bool same_bits(const Values& a, const Values& b) {
  for (size_t r = 0; r < a.size(); ++r)
    if (a[r].size() != b[r].size() ||
        (!a[r].empty() && std::memcmp(a[r].data(), b[r].data(), a[r].size() * 8) != 0))
      return false;
  return true;
}

std::string named(const KernelCall& c, Dtype narrow, const char* target) {
  std::string text = fmt::format("{} {} {}", c.op.name, info(narrow).name, target);
  for (const TensorType& t : c.in) text += " " + to_string(t);
  return text;
}

void compare(const KernelCall& c, Dtype narrow, const Values& exact, const Values& sizes,
             const Values& found, const std::string& name) {
  for (size_t r = 0; r < exact.size(); ++r) {
    const bool rounded = narrow == Dtype::bf16 && !has(wide_of(c.op, c.attrs, c.in).out, r);
    double largest = 0;
    for (const double v : exact[r]) largest = std::max(largest, std::abs(v));
    ASSERT_EQ(found[r].size(), exact[r].size());
    for (size_t k = 0; k < exact[r].size(); ++k) {
      const double size = sums_products(c.op.name) ? sizes[r][k] : largest;
      double limit = c.op.fast_error * std::exp2(-23) * size;
      if (narrow == Dtype::bf16 && !c.op.bf16_error.empty())
        limit += c.op.bf16_error[r] * std::exp2(-9) * largest;
      if (rounded) limit += half_ulp_bf16(std::abs(exact[r][k]) + limit);
      if (std::isinf(exact[r][k]) && exact[r][k] == found[r][k]) continue;
      ASSERT_LE(std::abs(found[r][k] - exact[r][k]), limit)
          << name << ": result " << r << " element " << k << ": found " << found[r][k]
          << ", expected " << exact[r][k];
    }
  }
}

void hold_type(const KernelCall& call, Kernel kernel, Dtype narrow) {
  const KernelCall c = with_values(call, narrow);
  const Values exact = run_kernel(c, run_reference, {Dtype::f64});
  KernelCall positive = c;
  for (auto& operand : positive.values)
    for (double& v : operand) v = std::abs(v);
  const Values sizes =
      sums_products(c.op.name) ? run_kernel(positive, run_reference, {Dtype::f64}) : exact;
  on_every_target([&](const char* target) {
    const std::string name = named(c, narrow, target);
    const Values found = run_kernel(c, kernel, {narrow});
    compare(c, narrow, exact, sizes, found, name);
    for (const int threads : {2, 3})
      EXPECT_TRUE(same_bits(found, run_kernel(c, kernel, {narrow, threads})))
          << name << ": " << threads << " threads change the result";
    if (c.op.in_place.empty()) return;
    EXPECT_TRUE(same_bits(found, run_kernel(c, kernel, {narrow, 1, true}))) << name;
  });
}

}  // namespace

const FastKernel& fast_kernel(std::string_view op) {
  for (const FastKernel& k : fast_kernels())
    if (k.op == op) return k;
  fail("no fast kernel for {}", op);
}

KernelCall with_values(KernelCall c, Dtype narrow) {
  uint64_t next = 0;
  c.values.resize(c.in.size());
  for (size_t i = 0; i < c.in.size(); ++i) {
    std::vector<double>& values = c.values[i];
    const bool given = !values.empty(), integers = c.in[i].dtype == Dtype::i32;
    if (has(c.unused, i)) continue;
    for (int64_t k = 0; !given && k < c.in[i].elements(); ++k)
      values.push_back(integers && c.integers
                           ? c.integers(i, k)
                           : c.low + (c.high - c.low) * uniform(11, Stream::test, next++));
    const Dtype dtype = stored(c.in[i].dtype, narrow, has(wide_of(c.op, c.attrs, c.in).in, i));
    for (double& v : values) v = as_stored(v, dtype);
  }
  return c;
}

std::vector<std::vector<double>> run_kernel(const KernelCall& c, Kernel kernel, KernelRun how) {
  std::vector<TensorType> types = c.in;
  for (TensorType& t : types)
    if (t.dtype != Dtype::i32) t.dtype = Dtype::f64;
  // A rank's part of the heads would not pass the checks, which are of whole tensors.
  const std::vector<TensorType> results =
      c.op.infer != nullptr ? c.op.infer(c.attrs, types) : infer_types(c.op, c.attrs, types);
  std::vector<Poisoned> memory;
  memory.reserve(types.size() + results.size() + 1);
  const auto view = [&](const TensorType& t, bool wide) {
    TensorView v;
    v.dtype = stored(t.dtype, how.narrow, wide);
    memory.emplace_back(dtype_bytes(v.dtype, t.elements()));
    v.data = memory.back().data();
    v.rank = static_cast<int>(t.dims.size());
    for (size_t d = 0; d < t.dims.size(); ++d) v.dims[d] = v.global[d] = t.dims[d].size;
    return v;
  };
  const Wide wide = wide_of(c.op, c.attrs, types);
  std::vector<TensorView> in, out;
  for (size_t i = 0; i < types.size(); ++i) {
    in.push_back(view(types[i], has(wide.in, i)));
    write(in[i], c.values.at(i));
  }
  if (c.place.size > 0) {
    in[0].begin[c.place.dim] = c.place.begin;
    in[0].global[c.place.dim] = c.place.size;
  }
  for (size_t r = 0; r < results.size(); ++r) out.push_back(view(results[r], has(wide.out, r)));
  for (const auto& [result, operand] : c.op.in_place)
    if (how.in_place) out[result].data = in[operand].data;
  std::vector<TensorType> stored_types = types;
  for (size_t i = 0; i < types.size(); ++i) stored_types[i].dtype = in[i].dtype;
  const int64_t space =
      c.op.workspace == nullptr ? 0 : c.op.workspace(c.attrs, stored_types, how.threads);
  memory.emplace_back(space);
  kernel({&c.attrs, in, out, memory.back().data(), how.threads, &c.op});
  for (size_t m = 0; m < memory.size(); ++m)
    EXPECT_TRUE(memory[m].whole()) << c.op.name << " wrote behind memory " << m;
  std::vector<std::vector<double>> found;
  for (const TensorView& v : out) found.push_back(read(v));
  return found;
}

void on_every_target(const std::function<void(const char*)>& f) {
  const int64_t all = hwy::SupportedTargets() | HWY_STATIC_TARGET;
  for (int64_t rest = all & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const int64_t one = rest & -rest;
    hwy::SetSupportedTargetsForTest(one);
    hwy::GetChosenTarget().Update(one);
    const Bf16Unit best = bf16_unit();
    for (const Bf16Unit unit : {Bf16Unit::none, Bf16Unit::avx512, Bf16Unit::amx}) {
      if (unit != Bf16Unit::none && one != HWY_AVX3) break;
      if (!use_bf16_unit(unit)) continue;
      f(unit == Bf16Unit::none ? hwy::TargetName(one) : name(unit));
    }
    use_bf16_unit(best);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void hold(const KernelCall& call, const FastKernel& kernel) {
  if (kernel.f32 != nullptr) hold_type(call, kernel.f32, Dtype::f32);
  if (kernel.bf16 != nullptr) hold_type(call, kernel.bf16, Dtype::bf16);
}

}  // namespace plait
