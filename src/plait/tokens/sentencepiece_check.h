// A look at a SentencePiece .model file before its library sees it: the library trusts tables in
// the file, and ends the process for some faults.
//
// Format: a protocol buffer, sentencepiece_model.proto of the library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait {

struct SentencePieceFacts {
  int64_t pieces = 0;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  std::string unk;                                       // the piece
  std::vector<std::pair<std::string, int32_t>> control;  // pieces that no text holds, and their ids
};

// Throws Error for a file that is broken, or of a kind that is not supported (word, character).
SentencePieceFacts check_sentencepiece(std::string_view file, const std::string& source);

// Throws Error when looking text up in a compiled character map could leave its tables.
void check_character_map(std::string_view blob, const std::string& source);

}  // namespace plait
