#include "plait/base/host_tensor.h"

#include "plait/base/half.h"

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
  if (dtype == Dtype::bf16) return bf16_value_f64(as<uint16_t>()[index]);
  if (dtype == Dtype::f16) return f16_value_f64(as<uint16_t>()[index]);
  return static_cast<double>(as<int32_t>()[index]);
}

namespace {

template <class To, class From, class F>
void map_elements(const HostTensor& from, HostTensor& to, F f) {
  const From* in = from.as<From>();
  To* out = to.as<To>();
  const int64_t n = from.elements();
  for (int64_t i = 0; i < n; ++i) out[i] = f(in[i]);
}

void widen(const HostTensor& from, HostTensor& to) {
  const bool bf16 = from.dtype == Dtype::bf16;
  if (to.dtype == Dtype::f32)
    map_elements<float, uint16_t>(from, to, bf16 ? bf16_value : f16_value);
  else
    map_elements<double, uint16_t>(from, to, bf16 ? bf16_value_f64 : f16_value_f64);
}

void narrow(const HostTensor& from, HostTensor& to) {
  dispatch_float(from.dtype, [&]<class T>() {
    if (to.dtype == Dtype::bf16)
      map_elements<uint16_t, T>(from, to, [](T x) { return bf16_bits(x); });
    else
      map_elements<uint16_t, T>(from, to, [](T x) { return f16_bits(x); });
  });
}

}  // namespace

HostTensor convert(HostTensor tensor, Dtype dtype) {
  if (tensor.dtype == dtype) return tensor;
  if (!info(dtype).is_float)
    fail("element type {} where a floating-point one is needed", info(dtype).name);
  const bool from_half = is_half(tensor.dtype);
  if (from_half && is_half(dtype))  // by way of f32: widening is exact
    return convert(convert(std::move(tensor), Dtype::f32), dtype);
  HostTensor result(dtype, tensor.dims);
  if (from_half) {
    widen(tensor, result);
  } else if (is_half(dtype)) {
    narrow(tensor, result);
  } else {
    const int64_t n = tensor.elements();
    dispatch_float(dtype, [&]<class T>() {
      for (int64_t i = 0; i < n; ++i) result.as<T>()[i] = static_cast<T>(tensor.at(i));
    });
  }
  return result;
}

}  // namespace plait
