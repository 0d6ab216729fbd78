// A data source as a TokenStore: tokenised, unless a cache of it is at hand.
//
//   SourceReport report;
//   const auto store = open_store(source, config, tokenizer, renderer, progress, report);
//
// A cache is one file, ".NAME.plait-tokens" beside the source, or in a folder of caches. It is
// made again, with a note, when it is damaged and when anything changed that decides its content:
// the tokenizer, the chat template, the options, the list of files or a file. A file counts as
// unchanged when its size, times and inode are those seen; otherwise its content is compared.
#pragma once

#include <memory>

#include "plait/data/source.h"
#include "plait/data/store.h"

namespace plait {

// Fills path, format, cache, files and the counts of `report`; notes of what was left out.
std::unique_ptr<TokenStore> open_store(const DataSource& source, const DataConfig& config,
                                       const Tokenizer& tokenizer, const ChatRenderer& renderer,
                                       const DataProgress& progress, SourceReport& report,
                                       std::vector<std::string>& notes);

// Where the cache of a source lies.
std::string cache_path(const std::string& source, const std::string& cache_folder);

struct TokeniseResult {
  std::vector<std::string> digests;  // of each file
  int64_t skipped_lines = 0, empty_documents = 0;
  std::vector<std::string> notes;
};
class TokenCacheWriter;
// Reads the files in order and writes their documents; several threads encode, none decides the
// order. `piece_bytes`: longer documents of text are encoded in pieces.
TokeniseResult tokenise(const SourceFiles& files, const DataConfig& config, const Encoder& encoder,
                        bool check_utf8, size_t piece_bytes, const DataProgress& progress,
                        TokenCacheWriter& writer);

}  // namespace plait
