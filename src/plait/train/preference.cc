#include "plait/train/preference.h"

#include <algorithm>
#include <set>

#include "plait/program/lower.h"
#include "plait/train/digest_tensors.h"

namespace plait {

namespace {

Programs token_loss_programs(const Model& model, Plan plan) {
  plan.microbatches = 1;
  LowerOptions options;
  options.train = false;
  options.threads = share_of_cores(plan.mesh.ranks());
  return lower(model, plan, options).programs;
}

int64_t count_pairs(const HostTensor& pairs, int64_t slot_tokens) {
  const int32_t* id = pairs.as<int32_t>();
  int64_t count = 0;
  for (int64_t slot = 0; slot < pairs.elements(); slot += slot_tokens) {
    std::set<int32_t> chosen;
    for (int64_t i = slot; i < slot + slot_tokens; ++i)
      if (id[i] % 2 == 1) chosen.insert(id[i]);
    count += static_cast<int64_t>(chosen.size());
  }
  return count;
}

}  // namespace

PreferenceReference::PreferenceReference(const Model& model, const Plan& plan,
                                         const HostTensors& parameters, double beta)
    : slot_tokens_(model.extent("T").unit),
      beta_(beta),
      digest_(digest_tensors(parameters)),
      session_(token_loss_programs(model, plan), {}) {
  session_.set_states("param/", parameters);
}

int64_t PreferenceReference::prepare(Batch& batch) {
  int64_t pairs = 0;
  for (const HostTensors& m : batch.microbatches) pairs += count_pairs(m.at("pairs"), slot_tokens_);
  for (HostTensors& m : batch.microbatches) {
    const Dtype dtype = m.at("weights").dtype;
    HostTensor scale(dtype, {});
    dispatch_float(dtype, [&]<class T>() {
      scale.as<T>()[0] = static_cast<T>(1.0 / static_cast<double>(std::max<int64_t>(1, pairs)));
    });
    m["pair_weight"] = std::move(scale);
    Batch one;
    one.microbatches.push_back(m);
    session_.step(one);
    m["reference"] = session_.gather("token_loss").begin()->second;
  }
  return pairs;
}

PreferenceMetrics PreferenceReference::metrics(const Session& session, int64_t pairs) const {
  const auto n = static_cast<double>(std::max<int64_t>(1, pairs));
  return {beta_ * session.scalar("preference_margin") / n, session.scalar("preference_right") / n};
}

}  // namespace plait
