#include "plait/tokens/sentencepiece.h"

#include "fuzz.h"
#include "plait/base/error.h"
#include "plait/io/files.h"

namespace plait {

namespace {

void run(std::string_view input) {
  const auto t = parse_sentencepiece(input, "tokenizer.model");
  for (const char* text :
       {"", " ab  hello\n", "ABe\xcc\x81\xef\xac\x81 <s>\xe2\x96\x81\xf0\x9f\x91\xa8"}) {
    const std::vector<int32_t> ids = t->encode(text);
    for (const int32_t id : ids)
      PLAIT_CHECK(id >= 0 && id < t->vocabulary(), "id {} of {}", id, t->vocabulary());
    t->decode(ids, true);
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const char* name : {"sp_tiny_bpe", "sp_tiny_unigram", "sp_tiny_map"})
    all.push_back(read_text(
        std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name + ".model", 1 << 20));
  return all;
}

}  // namespace

FuzzTarget fuzz_sentencepiece() { return {"sentencepiece", run, seeds}; }

}  // namespace plait
