// The model interpreted as it is written: block by block, node by node, by the plain references,
// on whole tensors, with no plan, partition, program or executor. What every layout is held
// against.
#pragma once

#include "plait/exec/session.h"
#include "plait/model/model.h"

namespace plait {

struct ReferenceStep {
  double loss = 0;
  double grad_sum_squares = 0;
  HostTensors gradients;
  // Norm of the summed absolute contributions of each gradient, where products can cancel.
  std::map<std::string, double> absolute_norms;
};

ReferenceStep reference_step(const Model& model, const HostTensors& parameters, const Batch& batch);

// p -= rate * g, for all parameters that have a gradient: plain SGD.
void reference_sgd(HostTensors& parameters, const HostTensors& gradients, double rate);

// A parameter's part of its tensor in Hugging Face's files: some tensors are transposed, or hold
// several parameters, row upon row.
HostTensor file_part(const Param& param, const HostTensor& whole);

double norm(const HostTensor& tensor);
// Frobenius norm of a - b.
double distance(const HostTensor& a, const HostTensor& b);

}  // namespace plait
