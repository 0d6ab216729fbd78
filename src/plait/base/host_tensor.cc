#include "plait/base/host_tensor.h"

#include <cstring>

namespace plait {

HostTensor::HostTensor(Dtype type, std::vector<int64_t> sizes)
    : dtype(type), dims(std::move(sizes)) {
  data.resize(static_cast<size_t>(dtype_bytes(dtype, elements())));
}

int64_t HostTensor::elements() const {
  int64_t n = 1;
  for (const int64_t d : dims) n = checked_mul(n, d);
  return n;
}

double HostTensor::at(int64_t index) const {
  if (dtype == Dtype::f32) return static_cast<double>(as<float>()[index]);
  if (dtype == Dtype::f64) return as<double>()[index];
  return static_cast<double>(as<int32_t>()[index]);
}

HostTensor convert(const HostTensor& tensor, Dtype dtype) {
  if (tensor.dtype == dtype) return tensor;
  HostTensor result(dtype, tensor.dims);
  const int64_t n = tensor.elements();
  dispatch_float(dtype, [&]<class T>() {
    for (int64_t i = 0; i < n; ++i) result.as<T>()[i] = static_cast<T>(tensor.at(i));
  });
  return result;
}

}  // namespace plait
