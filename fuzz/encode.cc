// Any text through one tokenizer of each kind: ids lie in the vocabulary; where nothing is
// normalized away, the text comes back.
#include <array>

#include "fuzz.h"
#include "plait/base/error.h"
#include "plait/io/files.h"
#include "plait/tokens/tokenizer.h"

namespace plait {

namespace {

struct Loaded {
  std::string name;
  std::unique_ptr<Tokenizer> tokenizer;
  bool exact;  // decode(encode(x)) is x
};

const std::vector<Loaded>& tokenizers() {
  static const std::vector<Loaded> all = [] {
    std::vector<Loaded> list;
    const std::string folder = std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/tokenizers/";
    for (const auto& [name, exact] :
         std::array{std::pair{"gpt2.json", true}, std::pair{"llama3.json", true},
                    std::pair{"cl100k.json", true}, std::pair{"kimi.json", true},
                    std::pair{"falcon.json", true}, std::pair{"qwen2.json", false},
                    std::pair{"llama2.json", false}, std::pair{"gemma.json", false},
                    std::pair{"unigram.json", false}, std::pair{"sp_bpe.model", false},
                    std::pair{"sp_unigram.model", false}, std::pair{"sp_map.model", false}})
      list.push_back({name, load_tokenizer(folder + name), exact});
    list.push_back({"bytes", byte_tokenizer(), true});
    return list;
  }();
  return all;
}

void run(std::string_view input) {
  std::string refused;
  for (const Loaded& l : tokenizers()) {
    std::vector<int32_t> ids;
    try {
      ids = l.tokenizer->encode(input, {.add_special = false, .parse_special = false});
    } catch (const Error& e) {
      PLAIT_CHECK(find_invalid_utf8(input), "{}: refused valid UTF-8: {}", l.name, e.what());
      refused = e.what();
      continue;
    }
    const std::string text = l.tokenizer->decode(ids);
    PLAIT_CHECK(!l.exact || text == input, "{}: '{}' came back as '{}'", l.name, input, text);
    l.tokenizer->encode(input);
  }
  if (!refused.empty()) fail("{}", refused);
}

std::vector<std::string> seeds() {
  return {"Hello, world! It's 12345 o'clock.\r\n\r\n  \tindented", "<|begin|> a <s> b\n\n<|end|>",
          "e\xcc\x81\xcc\xa7 \xea\xb0\x80\xe1\x86\xa8 \xef\xac\x81 \xe2\x96\x81\xe2\x96\x81x",
          "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 \xe6\x97\xa9\xe4\xb8\x8a\xe5\xa5\xbd"};
}

}  // namespace

FuzzTarget fuzz_encode() { return {"encode", run, seeds}; }

}  // namespace plait
