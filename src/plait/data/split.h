// Which documents of a source are trained on and which are held out.
//
//   UnitsReport report;
//   std::vector<PackUnit> units = whole_units(store, slot_tokens, "truncate", report);
//   Split split = hold_out(std::move(units), 0.05, slot_tokens, cut, paired, name);
#pragma once

#include "plait/data/pack.h"
#include "plait/data/store.h"

namespace plait {

struct UnitsReport {
  int64_t truncated_pairs = 0, dropped_pairs = 0;
};
// One unit per document that is not empty. Pairs: two units each; a pair longer than a slot is
// shortened at its ends, the longer side first, or dropped. It is also dropped when one side then
// holds nothing to learn.
std::vector<PackUnit> whole_units(const TokenStore& store, int64_t slot_tokens,
                                  const std::string& long_pairs, UnitsReport& report);

struct Split {
  std::vector<PackUnit> training, validation;
};
// `share` of the units is held out: with few documents that may be cut, the end of the text; else
// whole documents (pairs), drawn once and for all: another seed of training holds out the same.
Split hold_out(std::vector<PackUnit> units, double share, int64_t slot_tokens, bool may_cut,
               bool paired, const std::string& source);

}  // namespace plait
