// A SentencePiece .model file (BPE or unigram), encoded by Google's library.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plait/tokens/added_tokens.h"
#include "plait/tokens/tokenizer.h"

namespace plait {

// What the file does not say; the defaults are those of Hugging Face's Llama tokenizer.
struct SentencePieceOptions {
  bool add_bos = true, add_eos = false;
  // Text behind a special token gets the model's leading space again, as the first text does.
  bool legacy = false;
  std::vector<AddedToken> added;  // with ids of the model, or above them and without gaps
};

// `file` is its content; `source`, its path, opens every message.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view file, const std::string& source,
                                               const SentencePieceOptions& options = {});

}  // namespace plait
