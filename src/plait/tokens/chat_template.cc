#include "plait/tokens/chat_template.h"

#include <ctime>
#include <functional>

#include "plait/base/digest.h"
#include "plait/base/error.h"
#include "plait/tokens/jinja/interpreter.h"
#include "plait/tokens/jinja/parser.h"
#include "plait/tokens/tokenizer.h"

namespace plait {

using jinja::Budget;
using jinja::Dict;
using jinja::List;
using jinja::Problem;
using jinja::Value;

struct ChatTemplate::Parsed {
  std::string source;
  jinja::Body body;
  bool marks_generation = false;
  uint64_t digest = 0;
};

namespace {

using Json = TemplateInputs::Json;

Value checked_text(const std::string& s) {
  if (find_invalid_utf8(s)) jinja::problem("a text that is not valid UTF-8");
  return Value::text(s);
}

Value value_of(const Json& json, Budget& budget, int depth) {
  if (depth > jinja::kMaxNesting)
    jinja::problem("values nested more than {} deep", jinja::kMaxNesting);
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none();
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        jinja::problem("the number {} needs more than 64 bits", json.get<uint64_t>());
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return checked_text(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      List items;
      for (const Json& item : json) items.push_back(value_of(item, budget, depth + 1));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items())
        dict.set(checked_text(key), value_of(item, budget, depth + 1), budget);
      return Value::dict(std::move(dict));
    }
    default:
      jinja::problem("a value that is no JSON");
  }
}

// As transformers hands them over: keys with null are left out, and what a model thought is found
// as `reasoning_content` and as `thinking`.
Value message_of(const Json& message, Budget& budget) {
  if (!message.is_object())
    jinja::problem("a message must be an object, found {}", message.type_name());
  const Json* reasoning = nullptr;
  for (const char* key : {"reasoning_content", "thinking", "reasoning"})
    if (reasoning == nullptr && message.contains(key) && !message[key].is_null())
      reasoning = &message[key];
  Dict dict;
  const auto set = [&](const std::string& key, const Json& value) {
    dict.set(checked_text(key), value_of(value, budget, 2), budget);
  };
  if (reasoning != nullptr) set("thinking", *reasoning);
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) set(key, value);
  if (reasoning != nullptr) set("reasoning_content", *reasoning);
  return Value::dict(std::move(dict));
}

Value messages_of(const Json& messages, Budget& budget) {
  if (!messages.is_array()) jinja::problem("messages must be a list");
  List all;
  for (const Json& message : messages) all.push_back(message_of(message, budget));
  return Value::list(std::move(all));
}

// The time of day here, as if it were UTC.
int64_t local_seconds() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return timegm(&local);
}

bool has_generation(const jinja::Body& body);

bool has_generation(const jinja::Statement& s) {
  if (s.kind == jinja::Statement::Kind::generation) return true;
  for (const auto& branch : s.branches)
    if (has_generation(branch.body)) return true;
  if (s.macro && has_generation(s.macro->body)) return true;
  return has_generation(s.body) || has_generation(s.otherwise);
}

bool has_generation(const jinja::Body& body) {
  for (const jinja::Statement& s : body)
    if (has_generation(s)) return true;
  return false;
}

void set_inputs(jinja::Interpreter& in, const TemplateInputs& inputs, const std::string& source) {
  // What goes in is not counted as work of the template.
  Budget budget(INT64_MAX, INT64_MAX);
  std::string what = "messages";
  try {
    in.set("messages", messages_of(inputs.messages, budget));
    what = "tools";
    in.set("tools", value_of(inputs.tools, budget, 1));
    in.set("documents", Value::none());
    in.set("add_generation_prompt", Value::boolean(inputs.add_generation_prompt));
    for (const auto& [name, value] : inputs.more) {
      what = name;
      in.set(name, value_of(value, budget, 1));
    }
  } catch (const Problem& p) {
    fail("{}: the input '{}': {}", source, what, p.message);
  }
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& source) {
  if (find_invalid_utf8(text)) fail("{}: the template is not valid UTF-8", source);
  auto parsed = std::make_shared<Parsed>();
  parsed->source = source;
  parsed->body = jinja::parse(text, parsed->source);
  parsed->marks_generation = has_generation(parsed->body);
  parsed->digest = plait::digest(text);
  return ChatTemplate(std::move(parsed));
}

std::string ChatTemplate::render(const TemplateInputs& inputs, const TemplateLimits& limits) const {
  return render_spans(inputs, limits).text;
}

RenderedChat ChatTemplate::render_spans(const TemplateInputs& inputs,
                                        const TemplateLimits& limits) const {
  const jinja::RunLimits run{limits.steps, limits.output_bytes, limits.depth};
  jinja::Interpreter in(parsed_->source, run, inputs.now ? *inputs.now : local_seconds());
  set_inputs(in, inputs, parsed_->source);
  jinja::Rendered rendered = in.run(parsed_->body);
  return {std::move(rendered.text), std::move(rendered.generated)};
}

bool ChatTemplate::marks_generation() const { return parsed_->marks_generation; }
uint64_t ChatTemplate::digest() const { return parsed_->digest; }

}  // namespace plait
