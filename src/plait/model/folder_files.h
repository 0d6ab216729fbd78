// The files beside the parameters of a model folder: which go along when a model is saved, and
// what may be replaced. Used by folder.cc alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plait/model/folder.h"

namespace plait {

// Whether a new model in a folder takes the place of this file: parameters and configuration.
bool replaced_by_model(std::string_view name);

// Copies what belongs to the model in `from` (tokenizer, templates, licence, ...) into `fresh`,
// which will replace `target`. A file of the user in `target` is not replaced by one of `from`,
// a file of the tokenizer is. Without `tokenizer` its files stay behind.
void carry_files(const std::string& from, const std::string& fresh, const std::string& target,
                 bool tokenizer = true);

// "h.0-11.attn.bias, wte.weight": all names, those that differ in one number as one; at most
// `most` of these, then how many more.
std::string grouped_names(const std::vector<std::string>& names, size_t most = 40);

}  // namespace plait
