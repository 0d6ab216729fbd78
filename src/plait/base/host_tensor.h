// A whole tensor in host memory, row-major: what files hold, and what gathers yield.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "plait/base/dtype.h"

namespace plait {

struct HostTensor {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> dims;
  std::vector<std::byte> data;

  HostTensor() = default;
  HostTensor(Dtype type, std::vector<int64_t> sizes);  // zeros
  int64_t elements() const;
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data.data());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data.data());
  }
  double at(int64_t index) const;  // any element type, as a double
  bool operator==(const HostTensor&) const = default;
};

// Canonical global tensors by name. Ordered, so that whatever is printed from it is stable.
using HostTensors = std::map<std::string, HostTensor>;

// Between floating-point types, also those of files; to bf16 and f16 by rounding to nearest even.
// The tensor itself when it has that type already.
HostTensor convert(HostTensor tensor, Dtype dtype);

}  // namespace plait
