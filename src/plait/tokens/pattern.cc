#include "plait/tokens/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "plait/base/error.h"
#include "plait/tokens/json_section.h"
#include "plait/tokens/newer_characters.h"
#include "plait/tokens/utf8.h"

namespace plait {

struct Pattern::Regex {
  pcre2_code* code = nullptr;
  ~Regex() { pcre2_code_free(code); }
};

Pattern::Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

namespace {

constexpr size_t kMaxExpression = 20000;

std::string pcre_message(int code) {
  PCRE2_UCHAR buffer[200];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

// What a match needs besides the compiled pattern: one per thread, for all patterns.
struct Scratch {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 4 << 20, nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);

  Scratch() {
    if (context == nullptr || stack == nullptr || data == nullptr)
      fail("no memory left to match patterns");
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_heap_limit(context, 64 << 10);  // in KiB; without JIT only
    pcre2_set_depth_limit(context, 1 << 20);
  }
  ~Scratch() {
    pcre2_match_data_free(data);
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
  }
};

Scratch& scratch() {
  thread_local Scratch mine;
  return mine;
}

// Steps that one match may take: far above what splitting text into words needs.
uint32_t step_limit(size_t bytes) {
  return static_cast<uint32_t>(std::min<size_t>(100'000 + 50 * bytes, 1'000'000'000));
}

}  // namespace

Pattern Pattern::literal(std::string text) {
  Pattern p;
  p.text_ = std::move(text);
  return p;
}

Pattern Pattern::regex(std::string_view expression, const std::string& where) {
  if (expression.size() > kMaxExpression)
    fail("{}: a regular expression of {} bytes; at most {} are read", where, expression.size(),
         kMaxExpression);
  Pattern p;
  p.text_ = std::string(expression);
  p.regex_ = std::make_unique<Regex>();
  const std::string pcre = to_pcre(expression, where);
  struct Context {
    pcre2_compile_context* c = pcre2_compile_context_create(nullptr);
    ~Context() { pcre2_compile_context_free(c); }
  } context;
  pcre2_set_newline(context.c, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.c, 50);
  int error = 0;
  PCRE2_SIZE offset = 0;
  p.regex_->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pcre.data()), pcre.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE,
      &error, &offset, context.c);
  if (p.regex_->code == nullptr)
    fail("{}: the regular expression '{}' is not understood: {} (at {} in '{}')", where, expression,
         pcre_message(error), offset, pcre);
  pcre2_jit_compile(p.regex_->code, PCRE2_JIT_COMPLETE);  // without it, it is slower
  return p;
}

Pattern read_pattern(Section& s) {
  Section p(s.value("pattern"), s.where("pattern"));
  const bool regex = p.has("Regex");
  if (regex == p.has("String")) s.error("pattern", "needs one of 'String' and 'Regex'");
  Pattern result =
      regex ? Pattern::regex(p.string("Regex"), p.where()) : Pattern::literal(p.string("String"));
  p.finish();
  return result;
}

void Pattern::each_match(std::string_view text,
                         const std::function<void(size_t, size_t)>& visit) const {
  if (regex_ == nullptr) {
    if (text_.empty()) return;
    for (size_t at = text.find(text_); at != text.npos; at = text.find(text_, at + text_.size()))
      visit(at, at + text_.size());
    return;
  }
  Scratch& s = scratch();
  pcre2_set_match_limit(s.context, step_limit(text.size()));
  std::string storage;
  const std::string_view known = with_known_characters(text, storage);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(known.data());
  const PCRE2_SIZE* at = pcre2_get_ovector_pointer(s.data);
  size_t from = 0, last_end = text.size() + 1;
  while (from <= text.size()) {
    const int found = pcre2_match(regex_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                  s.data, s.context);
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0)
      fail("the pattern '{}' gave up on a text of {} bytes, after offset {}: {}", text_,
           text.size(), from, pcre_message(found));
    const size_t begin = at[0], end = at[1];
    if (begin == end && end == last_end) {  // an empty match right behind the last one
      from = begin < text.size() ? begin + utf8_length(text[begin]) : begin + 1;
      continue;
    }
    if (end < begin) fail("the pattern '{}' matches backwards", text_);  // \K in a lookahead
    from = last_end = end;
    visit(begin, end);
  }
}

}  // namespace plait
