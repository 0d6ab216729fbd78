// plait tokenize TOKENIZER: text to ids and back.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "plait/base/error.h"
#include "plait/cli/commands.h"
#include "plait/io/files.h"
#include "plait/io/json.h"
#include "plait/tokens/tokenizer.h"

namespace plait {

namespace {

struct TokenizeOptions {
  std::string tokenizer, text, file;
  bool ids = false, json = false, json_lines = false, decode = false;
  bool no_special = false, plain = false, skip_special = false;
};

constexpr int64_t kMaxText = int64_t{1} << 32;

std::string input(const CLI::App& command, const TokenizeOptions& o) {
  if (command.count("--text") > 0) return o.text;
  if (command.count("--file") > 0 && o.file != "-") return read_text(o.file, kMaxText);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

// Whole numbers with anything but digits between them: "[1, 2]", "1 2".
std::vector<int32_t> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '-') fail("ids: a negative number at offset {}", i);
    if (text[i] < '0' || text[i] > '9') {
      if (std::string_view(" ,[]\t\r\n").find(text[i]) == std::string_view::npos)
        fail("ids: '{}' at offset {}; expected numbers with spaces or commas between them", text[i],
             i);
      ++i;
      continue;
    }
    int64_t n = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      n = 10 * n + (text[i] - '0');
      if (n > INT32_MAX) fail("ids: a number above {}", INT32_MAX);
    }
    ids.push_back(static_cast<int32_t>(n));
  }
  return ids;
}

std::string list_text(const std::vector<int32_t>& ids, std::string_view between) {
  return fmt::format("{}", fmt::join(ids, between));
}

// Tokens as a person would want to see them, one a line: id, the token, the text it stands for.
void print_table(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) {
    const std::string token = tokenizer.token(id).value_or("");
    const auto quoted = [](const std::string& text) {
      return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    fmt::print("{:>7}  {}{}\n", id, quoted(token), tokenizer.is_special(id) ? "  special" : "");
  }
  fmt::print("{} tokens\n", ids.size());
}

nlohmann::ordered_json about(const Tokenizer& t) {
  nlohmann::ordered_json j;
  j["kind"] = t.kind();
  j["vocabulary"] = t.vocabulary();
  const auto special = [&](const char* name, const std::optional<int32_t>& id) {
    if (id) j[name] = *id;
  };
  special("bos", t.bos());
  special("eos", t.eos());
  special("pad", t.pad());
  special("unk", t.unk());
  j["digest"] = fmt::format("{:016x}", t.digest());
  return j;
}

// One JSON value a line: strings become arrays of ids; with --decode, the other way round.
void run_json_lines(const Tokenizer& tokenizer, std::string_view text, const TokenizeOptions& o,
                    const EncodeOptions& encode) {
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string where = fmt::format("line {}", ++number);
    if (line.empty()) continue;
    const nlohmann::json value = parse_json(line, where, 4, 4);
    try {
      if (o.decode && value.is_array())
        fmt::print("{}\n", nlohmann::json(
                               tokenizer.decode(value.get<std::vector<int32_t>>(), o.skip_special))
                               .dump());
      else if (!o.decode && value.is_string())
        fmt::print("{}\n",
                   nlohmann::json(tokenizer.encode(value.get<std::string>(), encode)).dump());
      else
        fail("expected {}", o.decode ? "an array of ids" : "a string");
    } catch (const std::exception& e) {
      fail("{}: {}", where, e.what());
    }
  }
}

void run(const CLI::App& command, const TokenizeOptions& o) {
  const auto tokenizer = o.tokenizer == "bytes" ? byte_tokenizer() : load_tokenizer(o.tokenizer);
  const std::string text = input(command, o);
  const EncodeOptions encode{.add_special = !o.no_special, .parse_special = !o.plain};
  if (o.json_lines) return run_json_lines(*tokenizer, text, o, encode);
  if (o.decode) {
    const std::string result = tokenizer->decode(parse_ids(text), o.skip_special);
    if (o.json)
      fmt::print("{}\n", nlohmann::json{{"text", result}}.dump(
                             -1, ' ', false, nlohmann::json::error_handler_t::replace));
    else
      fmt::print("{}", result);
    return;
  }
  const std::vector<int32_t> ids = tokenizer->encode(text, encode);
  if (o.json) {
    nlohmann::ordered_json j = about(*tokenizer);
    j["ids"] = ids;
    fmt::print("{}\n", j.dump());
  } else if (o.ids) {
    fmt::print("{}\n", list_text(ids, " "));
  } else {
    print_table(*tokenizer, ids);
  }
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "text to token ids, and back");
  auto o = std::make_shared<TokenizeOptions>();
  command
      ->add_option("TOKENIZER", o->tokenizer,
                   "a folder with tokenizer.json or tokenizer.model, one such file, or 'bytes'")
      ->required();
  auto* text = command->add_option("--text", o->text, "the text itself");
  command->add_option("--file", o->file, "a file with the text; '-' or neither: standard input")
      ->excludes(text);
  command->add_flag("--decode", o->decode, "the input is ids: print their text");
  auto* ids = command->add_flag("--ids", o->ids, "print ids alone, on one line");
  command->add_flag("--json", o->json, "print JSON: the ids, and what the tokenizer is")
      ->excludes(ids);
  command
      ->add_flag("--json-lines", o->json_lines,
                 "the input holds one JSON string a line; print one JSON array of ids for each")
      ->excludes(ids);
  command->add_flag("--no-special", o->no_special, "add no bos and eos");
  command->add_flag("--plain", o->plain, "special tokens in the text are text");
  command->add_flag("--skip-special", o->skip_special, "decode: leave special tokens out");
  command->callback([command, o] { run(*command, *o); });
}

}  // namespace plait
