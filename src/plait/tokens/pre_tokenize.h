// The "pre_tokenizer" of a tokenizer.json: cuts a text into pieces, each of which the model
// encodes on its own; some steps also rewrite the text.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

struct TextPiece {
  size_t begin, end;  // in Pieces::text
};

struct Pieces {
  std::string text;
  std::vector<TextPiece> pieces;  // none is empty
  bool at_start = false;          // the first piece opens what was given to encode()
  // The pieces are bytes that the model takes by their characters in byte_level.h: what a last
  // ByteLevel step leaves, so that nothing need be written out only to be read again.
  bool bytes = false;

  std::string_view at(const TextPiece& p) const {
    return std::string_view(text).substr(p.begin, p.end - p.begin);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

// The steps in order (Sequence is flattened); none for a JSON null. Throws Error naming what is
// not supported; `where` opens the message.
std::vector<std::unique_ptr<PreTokenizer>> read_pre_tokenizer(const nlohmann::json& value,
                                                              const std::string& where);

// "always", "first", "never", also from the older key add_prefix_space; takes them from `s`.
enum class PrependScheme { always, first, never };
class Section;
PrependScheme read_prepend_scheme(Section& s);

}  // namespace plait
