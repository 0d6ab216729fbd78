#include "plait/cli/chat.h"

#include <utility>

#include "plait/base/digest.h"
#include "plait/base/error.h"
#include "plait/io/files.h"
#include "plait/tokens/chat_template.h"

namespace plait {

namespace {

ChatRenderer renderer_of(const TokenizerFolder& folder, const std::string& source) {
  if (folder.chat_template.empty()) return {};
  TemplateInputs base;
  std::string all = folder.chat_template;
  for (const auto& [name, token] : folder.special_tokens) {
    base.more[name] = token;
    all += fmt::format("\n{}={}", name, token);
  }
  const ChatTemplate chat =
      ChatTemplate::parse(folder.chat_template, fmt::format("chat template of '{}'", source));
  ChatRenderer renderer;
  renderer.digest = digest(all);
  renderer.render = [chat, base](const ChatRenderer::Json& messages,
                                 const ChatRenderer::Json& tools, bool open_answer) {
    TemplateInputs in = base;
    in.messages = messages;
    in.tools = tools;
    in.add_generation_prompt = open_answer;
    in.now = 0;  // a template that prints the date must not make caches differ from day to day
    return chat.render(in);
  };
  return renderer;
}

}  // namespace

TextTools load_text_tools(const std::string& path) {
  if (path.empty()) return {byte_tokenizer(), {}};
  if (!is_folder(path)) return {load_tokenizer(path), {}};
  TokenizerFolder folder = load_tokenizer_folder(path);
  ChatRenderer renderer = renderer_of(folder, path);
  return {std::move(folder.tokenizer), std::move(renderer)};
}

}  // namespace plait
