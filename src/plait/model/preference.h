// Training on preference pairs (DPO): what the head Head::preference wants, and its form.
//
//   PreferenceOptions options;   // sigmoid, beta 0.1
//   Model model = with_preference(build_model(config, {8, 512}, Head::preference), options);
//   // step: fill the tensors below, run, read "loss", "preference_margin", "preference_right"
//
// Tensors of a micro-batch, beside tokens, positions and sequences as ever (i32 [T]):
//
//   labels       i32 [T]    the token after each one, within its text
//   weights      float [T]  1 where the label is of the answer; 0 in prompts, at the last token of
//                           a text and in padding. Not divided by any count
//   pairs        i32 [T]    2p + 1 at tokens of the chosen text of pair p of its slot, 2p + 2 at
//                           those of the rejected one, which follows it; 0 in padding. Both texts
//                           begin with the prompt and are sequences of their own, so attention
//                           does not cross from one to the other. A pair lies in one slot whole
//   reference    float [T]  the frozen model's loss of each label: the result "token_loss" of a
//                           forward-only program with Head::token_loss, on the parameters that
//                           training began with (LoRA: the base alone) and the same tokens and
//                           labels, one micro-batch a run. Finite everywhere; where weights are 0
//                           the values do not matter
//   pair_weight  float []   1 / the pairs of the whole step for their mean, in every micro-batch
//
// What programs hand out on every rank, summed over the micro-batches of the step: "loss";
// "preference_margin", the sum over pairs of the log-ratio (policy to reference) of the chosen
// answer less that of the rejected one; and "preference_right", how many pairs have a margin above
// 0. Beta times the mean margin is what TRL calls rewards/margins. The formulas:
// ops/preference_loss.cc.
#pragma once

#include <string>
#include <string_view>

#include "plait/model/model.h"

namespace plait {

struct PreferenceOptions {
  std::string variant = "sigmoid";  // sigmoid, hinge, ipo
  double beta = 0.1;
  double label_smoothing = 0;  // sigmoid alone: the share of pairs that are the wrong way round
  bool operator==(const PreferenceOptions&) const = default;
};

// The form of the loss that the model has; throws Error when it has none, or more than one.
PreferenceOptions preference_of(const Model& model);
// The model with another form; throws Error for an unknown variant or a value out of range.
Model with_preference(Model model, const PreferenceOptions& options);

}  // namespace plait
