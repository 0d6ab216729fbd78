// What training data consists of, as a table and notes for people.
#pragma once

#include <string>

#include "plait/data/data.h"

namespace plait {

// One row per source: documents, tokens, share of the samples, slots of an epoch, padding, cache.
std::string explain_data(const DataReport& report);
// "documents of 1 to 7 tokens" and so on: how many, and how many tokens they hold.
std::string explain_lengths(const std::vector<int64_t>& lengths);

}  // namespace plait
