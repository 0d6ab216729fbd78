// What the op files share: rules, costs and samples that many records have in common. The records
// themselves are declared and listed in table.cc, and nowhere else.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plait/ir/counted.h"
#include "plait/ir/op.h"

// The three instantiations of a reference kernel template.
#define PLAIT_REFERENCE(kernel) \
  ::plait::Reference { kernel<float>, kernel<double>, kernel<::plait::Counted> }

namespace plait {

using Types = std::vector<TensorType>;

inline constexpr std::string_view kIsGradient = "it is a gradient itself";
inline constexpr std::string_view kIsUpdate = "it is only used in updates";

// A rule that does not depend on the call: op.rule = fixed_rule<"t n -> n">;
template <size_t N>
struct RuleText {
  char text[N];
  constexpr RuleText(const char (&literal)[N]) { std::copy_n(literal, N, text); }  // NOLINT
};
template <RuleText rule>
std::string fixed_rule(const Attrs&, const Types&) {
  return rule.text;
}

// "a b, a b -> a b": `operands` tensors of one shape of any rank (0 to 3) to `results` of it; the
// shape is that of operand 0. `more` are further operands: "u!, .".
std::string elementwise_rule(size_t operands, size_t results, const Types& in,
                             std::string_view more = "");
template <size_t operands, size_t results = 1>
std::string elementwise(const Attrs&, const Types& in) {
  return elementwise_rule(operands, results, in);
}

// flops: `operations` for every element of operand 0.
template <int64_t operations>
int64_t per_element(const Attrs&, const Types& in) {
  return checked_mul(operations, in[0].elements());
}
inline int64_t no_flops(const Attrs&, const Types&) { return 0; }

// A single call, and calls of each rank from 0 to 3.
inline std::vector<OpSample> one_sample(Types in, Attrs attrs = {}) {
  OpSample s;
  s.in = std::move(in);
  s.attrs = std::move(attrs);
  return {s};
}
std::vector<OpSample> elementwise_samples(size_t operands, const Attrs& attrs = {});

// y[i] = f(x[i]) and y[i] = f(a[i], b[i]) for every element; y may be an operand.
template <class T>
void map_elements(const KernelArgs& args, T (*f)(T)) {
  const T* x = args.in[0].as<T>();
  T* y = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i) y[i] = f(x[i]);
}
template <class T>
void map_elements(const KernelArgs& args, T (*f)(T, T)) {
  const T* a = args.in[0].as<T>();
  const T* b = args.in[1].as<T>();
  T* y = args.out[0].as<T>();
  for (int64_t i = 0, n = args.out[0].elements(); i < n; ++i) y[i] = f(a[i], b[i]);
}

// An attribute that must be a whole number of at least `low`.
int64_t whole_attr(const Attrs& attrs, const std::string& name, int64_t low);

// Throws unless 0 <= id < vocabulary. `position` counts in the whole tensor of ids.
void check_id(std::string_view op, int64_t id, int64_t position, int64_t vocabulary);

}  // namespace plait
