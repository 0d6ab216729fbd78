// Chat templates: messages to the text that a model was trained on, by the Jinja template that
// comes with the model.
//
//   const auto chat = ChatTemplate::parse(text, "tokenizer_config.json");
//   TemplateInputs in;
//   in.messages = {{{"role", "user"}, {"content", "Hi"}}};
//   in.add_generation_prompt = true;
//   in.more["bos_token"] = "<s>";
//   std::string prompt = chat.render(in);
//
// A template is a program by a stranger. What runs here is the part of Jinja that published
// templates use, rendered as Hugging Face's transformers does (an ImmutableSandboxedEnvironment
// with trim_blocks and lstrip_blocks, loop controls, {% generation %}); all else is refused when
// it is parsed, by line and column. It sees data alone: no files, no clock but strftime_now, no
// attributes but those of data. Steps, output, nesting and the size of every text are bounded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait {

struct TemplateLimits {
  int64_t steps = 1'000'000;        // nodes evaluated; large texts count as many
  int64_t output_bytes = 16 << 20;  // also of any text on the way
  int depth = 100;                  // of macro calls
};

struct TemplateInputs {
  using Json = nlohmann::ordered_json;  // objects print in the order of their keys
  Json messages;                        // a list of objects
  bool add_generation_prompt = false;
  Json tools;                        // null: none
  std::map<std::string, Json> more;  // bos_token, eos_token, enable_thinking, ...
  // For strftime_now: seconds since 1970 on the clock on the wall. None: the machine's local time.
  std::optional<int64_t> now;
};

// With the bytes that stand within {% generation %}: [first, last) of each block.
struct RenderedChat {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generated;
};

class ChatTemplate {
 public:
  // `source` opens every message. Throws Error "SOURCE:LINE:COLUMN: ...".
  static ChatTemplate parse(std::string_view text, const std::string& source);

  // Throws Error, with line and column as well: what the template raises (raise_exception), uses
  // wrongly, or what exceeds the limits. May be called by several threads at once.
  std::string render(const TemplateInputs& inputs, const TemplateLimits& limits = {}) const;
  RenderedChat render_spans(const TemplateInputs& inputs, const TemplateLimits& limits = {}) const;

  // Has it {% generation %}, so that spans say which text the assistant wrote?
  bool marks_generation() const;
  uint64_t digest() const;  // of the template's text

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace plait
