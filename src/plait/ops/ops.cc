#include "plait/ops/ops.h"

namespace plait {

std::string elementwise_rule(size_t operands, size_t results, const Types& in,
                             std::string_view more) {
  const size_t rank = in.empty() ? 0 : in[0].dims.size();
  if (rank > 3) fail("operand 0: found {} dimensions, expected at most 3", rank);
  const std::string shape = rank == 0 ? "." : std::string("a b c").substr(0, 2 * rank - 1);
  std::string rule;
  for (size_t i = 0; i < operands; ++i) rule += (i > 0 ? ", " : "") + shape;
  if (!more.empty()) rule += ", " + std::string(more);
  rule += " -> ";
  for (size_t i = 0; i < results; ++i) rule += (i > 0 ? ", " : "") + shape;
  return rule;
}

std::vector<OpSample> elementwise_samples(size_t operands, const Attrs& attrs) {
  const Extent a{"T", 5}, b{"D", 6, 2}, c{"", 3};
  std::vector<OpSample> all;
  for (const std::vector<Extent>& dims :
       {std::vector<Extent>{}, {a}, {a, b}, std::vector<Extent>{c, a, b}}) {
    OpSample s;
    s.in.assign(operands, {Dtype::f64, dims});
    s.attrs = attrs;
    all.push_back(s);
  }
  return all;
}

int64_t whole_attr(const Attrs& attrs, const std::string& name, int64_t low) {
  const double value = attr(attrs, name);
  if (!(value >= static_cast<double>(low) && value < 0x1p53) || value != std::floor(value))
    fail("attribute '{}': found {}, expected a whole number of at least {}", name, value, low);
  return static_cast<int64_t>(value);
}

void check_id(std::string_view op, int64_t id, int64_t position, int64_t vocabulary) {
  if (id < 0 || id >= vocabulary)
    fail("op '{}': found id {} at position {}, expected 0 <= id < {}, the vocabulary size", op, id,
         position, vocabulary);
}

}  // namespace plait
