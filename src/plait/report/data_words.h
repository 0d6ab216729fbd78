// What the training data is, in a table: sources, documents, tokens, what was left out.
#pragma once

#include <string>

#include "plait/data/data.h"

namespace plait {

std::string explain_data(const DataReport& report, const std::string& tokenizer);
// Text for a line of a terminal: control characters but line ends as '?'.
std::string printable(std::string text);

}  // namespace plait
