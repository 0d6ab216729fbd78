// The files of a tokenizer, to be saved beside a model that learned with it.
//
//   SaveOptions options;
//   options.tokenizer = tokenizer_files("bytes");
#pragma once

#include <map>
#include <string>

namespace plait {

// By name, as a model's folder holds them: of "bytes", of a file, or of a folder, its chat template
// among them. What a folder holds besides is left out.
std::map<std::string, std::string> tokenizer_files(const std::string& path);

// The byte tokenizer as a tokenizer.json, for others: a BPE of the 256 bytes without merges. Text
// has the same ids there; what is no UTF-8 only the byte tokenizer takes. load_tokenizer makes the
// byte tokenizer of it again.
std::string byte_tokenizer_json();

}  // namespace plait
