#include "plait/tokens/tokenizer.h"

#include <filesystem>

#include "fuzz.h"
#include "plait/base/error.h"
#include "plait/io/files.h"
#include "plait/tokens/tokenizer_json.h"

namespace plait {

namespace {

// Few bytes each: what parsing does is the subject, and a mutation should hit something.
const std::string kByteLevel = R"({"version":"1.0","truncation":null,"padding":null,
"added_tokens":[{"id":6,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":true,
"normalized":false,"special":true}],"normalizer":{"type":"Sequence","normalizers":[
{"type":"NFC"},{"type":"Replace","pattern":{"Regex":"\\s+"},"content":" "}]},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":
"(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,
"trim_offsets":true,"use_regex":false}]},"post_processor":{"type":"TemplateProcessing","single":[
{"SpecialToken":{"id":"<|end|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],
"special_tokens":{"<|end|>":{"id":"<|end|>","ids":[6],"tokens":["<|end|>"]}}},
"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","unk_token":"u","fuse_unk":true,
"ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2,"u":3,"abab":4,"Ġ":5},
"merges":["a b",["ab","ab"]]}})";

const std::string kMetaspace = R"({"added_tokens":[],"normalizer":{"type":"Prepend","prepend":"▁"},
"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},
"post_processor":null,"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":
{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip",
"content":" ","start":1,"stop":0}]},"model":{"type":"Unigram","unk_id":0,"byte_fallback":false,
"vocab":[["<unk>",0.0],["▁",-1.5],["a",-2],["ab",-2.5],["▁ab",-3e0]]}})";

void use(const Tokenizer& t) {
  for (const char* text :
       {"", "ab abab  12\n<|end|> x", "e\xcc\x81\xcc\xa7 \xe2\x96\x81'S <0x41>"}) {
    std::vector<int32_t> ids;
    try {
      ids = t.encode(text);
    } catch (const Error&) {  // a character without a token
      continue;
    }
    for (const int32_t id : ids)
      PLAIT_CHECK(id >= 0 && id < t.vocabulary(), "id {} of {}", id, t.vocabulary());
    PLAIT_CHECK(!find_invalid_utf8(t.decode(ids, true)), "decoded text is no UTF-8");
  }
}

void run(std::string_view input) { use(*parse_tokenizer_json(input, "tokenizer.json")); }

std::vector<std::string> seeds() { return {kByteLevel, kMetaspace}; }

}  // namespace

FuzzTarget fuzz_tokenizer() { return {"tokenizer", run, seeds}; }

}  // namespace plait
