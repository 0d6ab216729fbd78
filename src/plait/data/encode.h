// From text and JSON records to token ids, and which of them are to be learned.
//
//   const Encoder encoder(config, tokenizer, renderer);
//   const Shape shape = shape_of(record);
//   std::vector<TokenDocument> documents = encoder.record(shape, record);
//
// Shapes of a record:
//   text         {"text": "..."}                                  all is learned
//   completion   {"prompt": "...", "completion": "..."}           the completion is learned
//   messages     {"messages": [{"role", "content"}, ...]}         what the assistant says is
//   learned preference   {"prompt", "chosen", "rejected"}                 two documents, chosen and
//   rejected
// prompt, completion, chosen and rejected may also be lists of messages.
//
// The ids are always those of the whole text at once. Where a learned part begins is found in the
// text: it is tokenised in pieces, and if these do not add up to the same ids, up to the part
// alone; the first token that then differs is the first of the part. In a chat, the tokens of an
// assistant's message are those between the template's text of all before it, with the opening of
// an answer, and its text of all up to the message.
#pragma once

#include <span>

#include "plait/data/data.h"
#include "plait/tokens/tokenizer.h"

namespace plait {

using Json = ChatRenderer::Json;

enum class Shape { text, completion, messages, preference };
std::string_view shape_name(Shape shape);  // "chat messages"
// Throws Error naming the keys that are there and those that would do.
Shape shape_of(const Json& record);

struct TokenDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> learn;  // as many; all 1 for text
};

// A range of bytes of a text.
struct TextRange {
  size_t begin = 0, end = 0;
};

class Encoder {
 public:
  Encoder(const DataConfig& config, const Tokenizer& tokenizer, const ChatRenderer& renderer);

  // One piece of a document of text.
  TokenDocument text(std::string_view text, bool first, bool last) const;
  // Throws Error saying what is wrong with the record, not where it stands. Preference: two
  // documents; an empty text: none.
  std::vector<TokenDocument> record(Shape shape, const Json& record) const;
  // The whole text, and where in it the assistant speaks, from message `first` on.
  std::pair<std::string, std::vector<TextRange>> chat(const Json& messages, const Json& tools,
                                                      size_t first) const;

 private:
  TokenDocument learn_ranges(std::string_view text, std::span<const TextRange> ranges,
                             const EncodeOptions& options) const;
  TokenDocument chat_document(const Json& messages, const Json& tools, size_t first) const;
  TokenDocument answer(const std::string& prompt, const std::string& answer) const;
  std::vector<TokenDocument> preference(const Json& record) const;
  std::string render(const Json& messages, const Json& tools, bool open_answer) const;
  void add_eos(TokenDocument& document) const;

  const Tokenizer& tokenizer_;
  const ChatRenderer& renderer_;
  EncodeOptions plain_, rendered_;
  bool add_eos_;
};

}  // namespace plait
