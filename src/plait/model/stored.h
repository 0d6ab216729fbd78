// The step from a tensor in memory to one in a file. A file must not hold what the model does not:
// a value beyond the range of the file's type would become an infinity, and nobody would be told.
//
//   HostTensor t = to_stored(std::move(tensor), Dtype::f16, "model.norm.weight");
#pragma once

#include <string_view>

#include "plait/base/host_tensor.h"

namespace plait {

// convert(), which throws Error naming tensor, element, value and remedy when an element is no
// finite number, before or after. `name` is the tensor's in the file.
HostTensor to_stored(HostTensor tensor, Dtype dtype, std::string_view name);

}  // namespace plait
