#include "plait/data/encode.h"

#include <algorithm>

#include "plait/base/error.h"

namespace plait {

namespace {

std::string_view type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    default:
      return "a number";
  }
}

const Json& member(const Json& record, const char* key) {
  const auto it = record.find(key);
  if (it == record.end()) fail("key '{}' is missing", key);
  return *it;
}

std::string string_member(const Json& record, const char* key) {
  const Json& value = member(record, key);
  if (!value.is_string()) fail("key '{}' is {}; needs a string", key, type_name(value));
  return value.get<std::string>();
}

void check_messages(const Json& messages, const char* key) {
  if (!messages.is_array())
    fail("key '{}' is {}; needs a list of messages", key, type_name(messages));
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& m = messages[i];
    if (!m.is_object()) fail("{}[{}] is {}; needs an object", key, i, type_name(m));
    const auto role = m.find("role"), content = m.find("content");
    if (role == m.end() || !role->is_string())
      fail("{}[{}] has no 'role' that is a string", key, i);
    const bool calls = m.contains("tool_calls");
    if (content == m.end() && !calls) fail("{}[{}] has no 'content'", key, i);
    if (content != m.end() && !content->is_string() && !content->is_array() &&
        !(content->is_null() && calls))
      fail("{}[{}]: 'content' is {}; needs a string", key, i, type_name(*content));
  }
}

Json joined(const Json& a, const Json& b) {
  Json all = a;
  for (const Json& m : b) all.push_back(m);
  return all;
}

Json first_messages(const Json& messages, size_t n) {
  Json some = Json::array();
  for (size_t i = 0; i < n; ++i) some.push_back(messages[i]);
  return some;
}

template <class A>
size_t common_prefix(const A& a, const A& b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first -
      a.begin());
}

// Back to the start of a character.
size_t character_start(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

size_t learned(const TokenDocument& d) {
  return static_cast<size_t>(std::count(d.learn.begin(), d.learn.end(), 1));
}

}  // namespace

std::string_view shape_name(Shape shape) {
  switch (shape) {
    case Shape::text:
      return "texts";
    case Shape::completion:
      return "prompts and completions";
    case Shape::messages:
      return "chat messages";
    default:
      return "preference pairs";
  }
}

Shape shape_of(const Json& record) {
  if (!record.is_object()) fail("{}; needs an object", type_name(record));
  if (record.contains("chosen") || record.contains("rejected")) return Shape::preference;
  if (record.contains("messages")) return Shape::messages;
  if (record.contains("prompt") || record.contains("completion")) return Shape::completion;
  if (record.contains("text")) return Shape::text;
  std::vector<std::string> keys;
  for (const auto& item : record.items())
    if (keys.size() < 8) keys.push_back("'" + item.key() + "'");
  fail(
      "an object with the keys {}; needs 'text', 'prompt' and 'completion', 'messages', or "
      "'chosen' and 'rejected'",
      keys.empty() ? "(none)" : fmt::format("{}", fmt::join(keys, ", ")));
}

Encoder::Encoder(const DataConfig& config, const Tokenizer& tokenizer, const ChatRenderer& renderer)
    : tokenizer_(tokenizer),
      renderer_(renderer),
      plain_{config.add_special, config.parse_special},
      rendered_{false, true},
      add_eos_(config.add_eos && tokenizer.eos().has_value()) {}

void Encoder::add_eos(TokenDocument& d) const {
  if (!add_eos_ || (!d.ids.empty() && d.ids.back() == *tokenizer_.eos())) return;
  d.ids.push_back(*tokenizer_.eos());
  d.learn.push_back(1);
}

TokenDocument Encoder::text(std::string_view text, bool first, bool last) const {
  EncodeOptions options = plain_;
  options.add_special = plain_.add_special && first;
  TokenDocument d;
  d.ids = tokenizer_.encode(text, options);
  d.learn.assign(d.ids.size(), 1);
  if (last) add_eos(d);
  return d;
}

// The number of tokens of `whole` before each of the ascending positions `cuts` of `text`.
static std::vector<size_t> token_positions(const Tokenizer& tokenizer, std::string_view text,
                                           const std::vector<int32_t>& whole,
                                           const std::vector<size_t>& cuts,
                                           const EncodeOptions& options) {
  std::vector<size_t> positions;
  std::vector<int32_t> pieces;
  size_t begin = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : text.size();
    EncodeOptions piece = options;
    piece.add_special = options.add_special && i == 0;
    const auto ids = tokenizer.encode(text.substr(begin, end - begin), piece);
    pieces.insert(pieces.end(), ids.begin(), ids.end());
    if (i < cuts.size()) positions.push_back(pieces.size());
    begin = end;
  }
  if (pieces == whole) return positions;
  positions.clear();
  for (const size_t cut : cuts)
    positions.push_back(common_prefix(tokenizer.encode(text.substr(0, cut), options), whole));
  return positions;
}

TokenDocument Encoder::learn_ranges(std::string_view text, std::span<const TextRange> ranges,
                                    const EncodeOptions& options) const {
  TokenDocument d;
  d.ids = tokenizer_.encode(text, options);
  d.learn.assign(d.ids.size(), 0);
  std::vector<size_t> cuts;
  for (const TextRange& r : ranges)
    for (const size_t at : {r.begin, r.end})
      if (at > 0 && at < text.size()) cuts.push_back(at);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  const std::vector<size_t> positions = token_positions(tokenizer_, text, d.ids, cuts, options);
  const auto token_at = [&](size_t at) {
    if (at == 0) return size_t{0};
    if (at >= text.size()) return d.ids.size();
    const auto it = std::lower_bound(cuts.begin(), cuts.end(), at);
    return positions[static_cast<size_t>(it - cuts.begin())];
  };
  for (const TextRange& r : ranges)
    for (size_t i = token_at(r.begin), end = token_at(r.end); i < end; ++i) d.learn[i] = 1;
  return d;
}

TokenDocument Encoder::answer(const std::string& prompt, const std::string& answer) const {
  const TextRange range{prompt.size(), prompt.size() + answer.size()};
  TokenDocument d = learn_ranges(prompt + answer, {&range, 1}, plain_);
  add_eos(d);
  return d;
}

std::string Encoder::render(const Json& messages, const Json& tools, bool open_answer) const {
  if (!renderer_.render)
    fail("chat messages, and the model has no chat template; needs a folder with one");
  try {
    return renderer_.render(messages, tools, open_answer);
  } catch (const Error& e) {
    fail("the chat template refuses {} messages: {}", messages.size(), e.what());
  }
}

std::pair<std::string, std::vector<TextRange>> Encoder::chat(const Json& messages,
                                                             const Json& tools,
                                                             size_t first) const {
  if (messages.empty()) fail("no messages");
  const std::string whole = render(messages, tools, false);
  std::vector<TextRange> ranges;
  // What the template writes of the first n messages, unless it writes them otherwise when
  // others follow.
  const auto text_of_first = [&](size_t n) {
    std::string text = n == messages.size() ? whole
                       : n == 0             ? ""
                                            : render(first_messages(messages, n), tools, false);
    const size_t same = common_prefix(text, whole);
    if (same < text.size())
      fail(
          "the chat template writes the first {} messages in another way when others follow (from "
          "byte {} on, '{}' becomes '{}'), so the tokens of each cannot be told apart; give a "
          "record for each answer, or a template without this",
          n, same, text.substr(character_start(text, same), 20),
          whole.substr(character_start(whole, same), 20));
    return text;
  };
  for (size_t i = first; i < messages.size(); ++i) {
    if (messages[i].at("role") != "assistant") continue;
    const std::string before = render(first_messages(messages, i), tools, true);
    size_t begin = common_prefix(before, whole);
    if (begin < before.size()) {
      const size_t least = text_of_first(i).size();
      if (begin < least) fail("the chat template opens an answer by changing what came before it");
      begin = character_start(whole, begin);
    }
    const size_t end = text_of_first(i + 1).size();
    if (begin < end) ranges.push_back({begin, end});
  }
  return {whole, ranges};
}

TokenDocument Encoder::chat_document(const Json& messages, const Json& tools, size_t first) const {
  const auto [text, ranges] = chat(messages, tools, first);
  return learn_ranges(text, ranges, rendered_);
}

std::vector<TokenDocument> Encoder::preference(const Json& record) const {
  const Json& chosen = member(record, "chosen");
  const Json& rejected = member(record, "rejected");
  const auto prompt = record.find("prompt");
  std::vector<TokenDocument> pair;
  if (chosen.is_string()) {
    const std::string start = prompt == record.end() ? "" : string_member(record, "prompt");
    pair.push_back(answer(start, string_member(record, "chosen")));
    pair.push_back(answer(start, string_member(record, "rejected")));
  } else {
    check_messages(chosen, "chosen");
    check_messages(rejected, "rejected");
    const auto tools = record.value("tools", Json());
    const bool apart = prompt != record.end() && prompt->is_array();
    if (apart) check_messages(*prompt, "prompt");
    // Without a list of their own, the messages of the prompt are those that both open with.
    const size_t shared = apart ? prompt->size() : common_prefix(chosen, rejected);
    for (const Json* side : {&chosen, &rejected})
      pair.push_back(chat_document(apart ? joined(*prompt, *side) : *side, tools, shared));
  }
  if (learned(pair[0]) == 0) fail("'chosen' holds nothing to learn");
  if (learned(pair[1]) == 0) fail("'rejected' holds nothing to learn");
  return pair;
}

std::vector<TokenDocument> Encoder::record(Shape shape, const Json& record) const {
  const Shape found = shape_of(record);
  if (found != shape)
    fail("{}, where the file began with {}", shape_name(found), shape_name(shape));
  std::vector<TokenDocument> documents;
  switch (shape) {
    case Shape::text: {
      const std::string content = string_member(record, "text");
      if (!content.empty()) documents.push_back(text(content, true, true));
      break;
    }
    case Shape::completion: {
      const Json& prompt = member(record, "prompt");
      if (!prompt.is_array()) {
        documents.push_back(
            answer(string_member(record, "prompt"), string_member(record, "completion")));
        break;
      }
      const Json& completion = member(record, "completion");
      check_messages(prompt, "prompt");
      check_messages(completion, "completion");
      documents.push_back(
          chat_document(joined(prompt, completion), record.value("tools", Json()), prompt.size()));
      break;
    }
    case Shape::messages: {
      const Json& messages = member(record, "messages");
      check_messages(messages, "messages");
      documents.push_back(chat_document(messages, record.value("tools", Json()), 0));
      break;
    }
    case Shape::preference:
      documents = preference(record);
  }
  return documents;
}

}  // namespace plait
