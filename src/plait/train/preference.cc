#include "plait/train/preference.h"

#include <set>

#include "plait/program/lower.h"

namespace plait {

namespace {

Programs token_loss_programs(const Model& model, Plan plan) {
  plan.microbatches = 1;
  LowerOptions options;
  options.train = false;
  return lower(model, plan, options).programs;
}

// Pairs are numbered from 0 in every slot: 2p + 1 is p's chosen answer, 2p + 2 its rejected one.
int64_t count_pairs(const HostTensor& pairs, int64_t slot_tokens) {
  int64_t count = 0;
  for (int64_t slot = 0; slot < pairs.elements(); slot += slot_tokens) {
    std::set<int32_t> chosen;
    for (int64_t i = slot; i < slot + slot_tokens; ++i)
      if (pairs.as<int32_t>()[i] % 2 == 1) chosen.insert(pairs.as<int32_t>()[i]);
    count += static_cast<int64_t>(chosen.size());
  }
  return count;
}

}  // namespace

PreferenceReference::PreferenceReference(const Model& model, const Plan& plan,
                                         const HostTensors& parameters)
    : slot_tokens_(model.extent("T").unit), session_(token_loss_programs(model, plan), {}) {
  session_.set_states("param/", parameters);
}

}  // namespace plait
