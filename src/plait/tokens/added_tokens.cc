#include "plait/tokens/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "plait/base/error.h"
#include "plait/tokens/json_section.h"
#include "plait/tokens/utf8.h"

namespace plait {

namespace {

size_t character_before(std::string_view text, size_t at) {
  --at;
  while ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

bool is_word(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0x200c || c == 0x200d;  // joiners
  }
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(utf8_at(text, character_before(text, text.size())));
}
bool starts_with_word(std::string_view text) { return !text.empty() && is_word(utf8_at(text, 0)); }

}  // namespace

AddedToken read_added_token(const nlohmann::json& value, std::optional<int64_t> id,
                            const std::string& where) {
  Section s(value, where);
  AddedToken t;
  t.content = s.string("content");
  t.id = static_cast<int32_t>(id ? *id : s.integer("id", 0, (1 << 24) - 1));
  t.special = s.boolean("special", false);
  t.single_word = s.boolean("single_word", false);
  t.lstrip = s.boolean("lstrip", false);
  t.rstrip = s.boolean("rstrip", false);
  t.normalized = s.boolean("normalized", !t.special);
  s.ignore("__type");
  s.finish();
  if (t.content.empty()) s.error("content", "empty");
  if (t.content.size() > 4096)
    s.error("content", "{} bytes; at most 4096 are read", t.content.size());
  return t;
}

void AddedTokens::add(const AddedToken& token, const std::string& pattern) {
  if (pattern.empty()) return;
  trie_.add(pattern, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, bool special) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    size_t longest = 0;
    const AddedToken* token = nullptr;
    trie_.each_prefix(text.substr(at), [&](size_t bytes, int32_t index) {
      longest = bytes;
      token = &tokens_[static_cast<size_t>(index)];
    });
    if (token == nullptr) {
      ++at;
      continue;
    }
    // What matches here is used up, even if it is then found to be text.
    if (const auto found = match(text, at, longest, special, *token, done)) {
      if (done < found->begin) parts.push_back({done, found->begin, std::nullopt});
      parts.push_back(*found);
      done = found->end;
    }
    at += longest;
  }
  if (done < text.size()) parts.push_back({done, text.size(), std::nullopt});
  return parts;
}

std::optional<AddedTokens::Part> AddedTokens::match(std::string_view text, size_t at,
                                                    size_t longest, bool special,
                                                    const AddedToken& token, size_t done) const {
  if (token.special && !special) return std::nullopt;
  Part p{at, at + longest, token.id};
  if (token.single_word &&
      (ends_with_word(text.substr(0, p.begin)) || starts_with_word(text.substr(p.end))))
    return std::nullopt;
  if (token.lstrip)
    while (p.begin > done) {
      const size_t before = character_before(text, p.begin);
      if (!is_white_space(utf8_at(text, before))) break;
      p.begin = before;
    }
  if (token.rstrip)
    while (p.end < text.size() && is_white_space(utf8_at(text, p.end)))
      p.end += utf8_length(text[p.end]);
  return p;
}

}  // namespace plait
