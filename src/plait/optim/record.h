// What the records of optimizers share; included by optim/*.cc only.
#pragma once

#include "plait/optim/optimizer.h"

namespace plait {

inline constexpr double kBelowOne = 1 - 0x1p-53;  // the largest number below 1

inline std::vector<size_t> every_dim(const TensorType& type) {
  std::vector<size_t> dims(type.dims.size());
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = i;
  return dims;
}

// Every dimension but one.
inline std::vector<size_t> dims_without(const TensorType& type, size_t dim) {
  std::vector<size_t> dims = every_dim(type);
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(dim));
  return dims;
}

std::vector<Setting> adamw_settings();  // muon has them too, for what it leaves to AdamW

}  // namespace plait
