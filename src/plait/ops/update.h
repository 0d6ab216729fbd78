// What the ops of updates share. `hyper` [2] = {learning rate, step from 1}. `scale` is the factor
// that clips the gradient; one that is not finite says that the gradient is not: the update is
// skipped then, and every result in place is its operand, bit for bit. Attributes "weight_decay"
// and "rate", a factor on the learning rate (1 when it is absent), are those of the parameter.
#pragma once

#include <initializer_list>

#include "plait/ops/ops.h"

namespace plait {

struct Hyper {
  double rate, step;
};

template <class T>
Hyper read_hyper(const KernelArgs& args, size_t operand) {
  const T* hyper = args.in[operand].as<T>();
  return {static_cast<double>(hyper[0]) * attr_or(*args.attrs, "rate", 1),
          static_cast<double>(hyper[1])};
}

// 1 - learning rate x weight decay: what decoupled weight decay leaves of a parameter.
inline double kept_share(const KernelArgs& args, double rate) {
  return 1 - rate * attr(*args.attrs, "weight_decay");
}

template <class T>
double scalar(const TensorView& x) {
  return static_cast<double>(*x.as<T>());
}

// When the scale is not finite: leaves the operands in the results, and says so.
template <class T>
bool skip_update(const KernelArgs& args, size_t scale,
                 std::initializer_list<std::pair<size_t, size_t>> in_place) {
  if (std::isfinite(scalar<T>(args.in[scale]))) return false;
  for (const std::pair<size_t, size_t>& pair : in_place) {
    const TensorView &from = args.in[pair.second], &to = args.out[pair.first];
    if (from.data != to.data) std::copy_n(from.as<T>(), from.elements(), to.as<T>());
  }
  return true;
}

inline void check_hyper(const Types& in, size_t operand) {
  if (in[operand].dims[0].size != 2)
    fail("operand {}: found {}, expected 2 elements: learning rate, step", operand,
         to_string(in[operand]));
}

inline const TensorType kHyperSample{Dtype::f64, {{"", 2}}}, kScalarSample{Dtype::f64, {}};

}  // namespace plait
