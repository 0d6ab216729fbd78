// Fused ops: what several ops do in a row, done at once by one kernel. A fused op states the row as
// text, and everything that the compiler knows of it follows from that: its types and placements,
// what it means, its FLOPs, and its plain reference, which runs the references of the row.
//
//   op.expansion = parse_expansion(
//       "x, w, b -> y: p = matmul(x, w) trans_a=* trans_b=*; y = add_bias(p, b)");
//
// An attribute with a star is one of the fused op, passed on when it is given; others are fixed.
// The same text is the pattern that fusion (plan/fuse.h) looks for.
#pragma once

#include "plait/ir/op.h"

namespace plait {

struct ExpansionNode {
  std::string name;             // of the op
  std::vector<size_t> in, out;  // values of the expansion
  Attrs fixed;
  std::vector<std::string> passed;  // attributes taken from the fused op where it has them
  const OpDef& op() const { return find_op(name); }
};

// Values are numbered: operands first, then results of the nodes in order.
struct Expansion {
  std::vector<std::string> names;  // of values
  size_t operands = 0;
  std::vector<size_t> results;
  std::vector<ExpansionNode> nodes;
};

std::shared_ptr<const Expansion> parse_expansion(std::string_view text);

Attrs node_attrs(const ExpansionNode& node, const Attrs& attrs);

// The row as a graph on operands of these types; throws Error where they do not fit.
Graph expand(const OpDef& op, const Attrs& attrs, const std::vector<TensorType>& in);

// Kernels for any op: the plain reference in the element type of the operands. In bf16 it computes
// in f32 and rounds each result once; a fused op runs its row. They allocate, and need `args.op`.
void run_reference(const KernelArgs& args);

}  // namespace plait
