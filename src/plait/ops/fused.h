// What the records of fused ops share.
#pragma once

#include "plait/ir/fused.h"
#include "plait/ops/ops.h"

namespace plait {

inline constexpr std::string_view kIsFused = "fusion comes after differentiation";

// A fused op: its name, what it does in words, and the row of ops that it stands for.
OpDef fused_op(std::string_view name, std::string_view summary, std::string_view expansion);

}  // namespace plait
