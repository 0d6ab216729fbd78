// One number for a set of tensors: to tell whether parameters are those that a run began with.
#pragma once

#include <string>

#include "plait/base/host_tensor.h"

namespace plait {

// 16 hexadecimal digits over names, types and bytes.
std::string digest_tensors(const HostTensors& tensors);

}  // namespace plait
