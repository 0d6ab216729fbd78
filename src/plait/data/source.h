// A data source as files: which they are, and in which format.
//
//   const SourceFiles files = find_files({"chats/*.jsonl"});
//   files.format == Format::jsonl, files.shape == Shape::messages
#pragma once

#include "plait/data/encode.h"

namespace plait {

enum class Format { text, jsonl, megatron };
std::string_view format_name(Format format);

struct SourceFiles {
  std::string root;                // as given
  std::vector<std::string> paths;  // sorted
  Format format = Format::text;
  Shape shape = Shape::text;
  std::string detected;                 // "jsonl (chat messages), from its first line"
  int64_t empty_files = 0;              // left out, when there are others
  std::string name(size_t file) const;  // of a file, as seen from the root
};

// Each file's format is told from its own name and beginning. Throws Error when there is nothing,
// when a file cannot be read or is empty (other than one of several), when it is neither text nor
// data (a zero byte near its beginning), and when the files differ in format or shape. A file that
// is named as JSON lines is never taken for text: its first line is a record or an error, unless
// bad lines are skipped.
SourceFiles find_files(const DataSource& source, bool skip_bad_lines = false);

// A line of a file of JSON lines. Throws Error: no UTF-8, no JSON.
Json parse_record(const std::string& line);
// Blank lines are no records.
bool is_blank(std::string_view line);

}  // namespace plait
