// How many tokens a model looks at while it continues a text, and what it then does not see.
//
//   const int64_t window = window_for(needed_tokens(prompt, more), positions_of(model));
//   left_out_note(prompt, more, window);   // empty: the model sees all of it
#pragma once

#include <cstdint>
#include <string>

#include "plait/model/model.h"

namespace plait {

// Positions that the model has (learned ones) or was made for (its config); 0: no limit is known.
int64_t positions_of(const Model& model);

// Tokens that lie before the last of `more` new ones; at least the prompt.
int64_t needed_tokens(int64_t prompt, int64_t more);

// `needed`, up to the next multiple of 64, but no more than the model's positions.
int64_t window_for(int64_t needed, int64_t positions);

// "the model sees the last 64 tokens; the first 36 of the prompt's 100 are left out"
std::string left_out_note(int64_t prompt, int64_t more, int64_t window);

}  // namespace plait
