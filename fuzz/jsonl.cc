#include "fuzz.h"
#include "plait/base/error.h"
#include "plait/data/encode.h"
#include "plait/data/source.h"
#include "plait/data/streams.h"

namespace plait {

namespace {

std::string render(const Json& messages, const Json& tools, bool open_answer) {
  std::string text = tools.is_null() ? "" : tools.dump() + "\n";
  for (const Json& m : messages) {
    const auto content = m.find("content");
    text += "<" + m.at("role").get<std::string>() + ">" +
            (content == m.end() ? "" : content->dump()) + "\n";
  }
  return text + (open_answer ? "<assistant>" : "");
}

// Every line by itself, so that a bad one does not hide those after it.
void run(std::string_view input) {
  const std::string path = fuzz_file("data.jsonl", input);
  const auto tokenizer = byte_tokenizer();
  const DataConfig config;
  const ChatRenderer renderer{render, 1};
  const Encoder encoder(config, *tokenizer, renderer);
  LineReader lines(path);
  for (std::string line; lines.next(line);) try {
      const Json record = parse_record(line);
      for (const TokenDocument& d : encoder.record(shape_of(record), record))
        if (d.ids.size() != d.learn.size()) throw std::logic_error("ids and flags differ");
    } catch (const Error&) {
    }
  find_files({path, "jsonl"});
}

std::vector<std::string> seeds() {
  return {
      "{\"text\": \"a b\"}\n{\"text\": \"\\u00e9\\ud83d\\ude00\"}\n",
      "{\"prompt\": \"Q: 1+1\", \"completion\": \" 2\"}\n",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
      "\"content\": \"ho\"}], \"tools\": [{\"name\": \"f\"}]}\n",
      "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n",
      "{\"chosen\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
      "\"content\": \"b\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": "
      "\"assistant\", \"content\": \"c\"}]}\r\n"};
}

}  // namespace

FuzzTarget fuzz_jsonl() { return {"jsonl", run, seeds}; }

}  // namespace plait
