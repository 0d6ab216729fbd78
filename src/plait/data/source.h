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

// Throws Error when there is nothing, when a file cannot be read or is empty (other than one of
// several), when the files differ in format or shape.
SourceFiles find_files(const DataSource& source);

// A line of a file of JSON lines. Throws Error: no UTF-8, no JSON.
Json parse_record(const std::string& line);
// Blank lines are no records.
bool is_blank(std::string_view line);

}  // namespace plait
