// What learning from preferences (DPO) adds to a training step: the losses that the starting
// model gives to every token, and the scaling of the pairs' loss to a mean (model/preference.h has
// the tensors).
//
//   PreferenceReference reference(token_loss_model, plan, starting_parameters, options.beta);
//   int64_t pairs = reference.prepare(batch);   // then session.step(batch)
//   PreferenceMetrics m = reference.metrics(session, pairs);
#pragma once

#include "plait/exec/session.h"
#include "plait/model/model.h"
#include "plait/plan/plan.h"

namespace plait {

// Over the pairs of one step.
struct PreferenceMetrics {
  double margin = 0;    // mean of beta x (how much more the chosen answer gained than the rejected)
  double accuracy = 0;  // share of pairs whose margin is positive
};

class PreferenceReference {
 public:
  // `model` has the result "token_loss" over the same parameters as the model that is trained.
  // It runs under the same plan, one micro-batch at a time.
  PreferenceReference(const Model& model, const Plan& plan, const HostTensors& parameters,
                      double beta);

  // Of the parameters: a run that goes on must do so with the same ones.
  const std::string& digest() const { return digest_; }
  // Adds "reference" and "pair_weight" to every micro-batch. Returns the number of pairs.
  int64_t prepare(Batch& batch);
  PreferenceMetrics metrics(const Session& session, int64_t pairs) const;

 private:
  int64_t slot_tokens_;
  double beta_;
  std::string digest_;
  Session session_;
};

}  // namespace plait
