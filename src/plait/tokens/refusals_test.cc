// What is refused, and that the message says where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "plait/base/error.h"
#include "plait/io/files.h"
#include "plait/tokens/pattern.h"
#include "plait/tokens/sentencepiece.h"
#include "plait/tokens/sentencepiece_check.h"
#include "plait/tokens/tokenizer_json.h"

namespace plait {
namespace {

using testing::HasSubstr;

std::string message(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "(nothing was refused)";
}

// A small tokenizer.json with one part replaced.
std::string file_with(const std::string& part, const std::string& value) {
  std::string model = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";
  if (part == "model") return "{\"model\":" + value + "}";
  return "{\"model\":" + model + ",\"" + part + "\":" + value + "}";
}

struct Case {
  const char *part, *value, *words;
};

TEST(TokenizerRefusals, TokenizerJson) {
  const Case cases[] = {
      {"model", R"({"type":"WordPiece"})",
       "t.json: model.type: model 'WordPiece' is not supported"},
      {"model", R"({"type":"BPE","vocab":{"a":-1},"merges":[]})", "token 'a' has id -1"},
      {"model", R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})", "id 0 is given twice"},
      {"model", R"({"type":"BPE","vocab":{"a":99999999},"merges":[]})",
       "token 'a' has id 99999999"},
      {"model", R"({"type":"BPE","vocab":{"a":9000000},"merges":[]})", "far above"},
      {"model", R"({"type":"BPE","vocab":{"a":900000},"merges":[]})",
       "most ids would mean nothing"},
      {"model", R"({"type":"BPE","vocab":{"a":18446744073709551615},"merges":[]})",
       "token 'a': expected an id, found 18446744073709551615"},
      {"model", R"({"type":"BPE","vocab":{"a":0.5},"merges":[]})", "expected an id, found 0.5"},
      {"model", R"({"type":"BPE","vocab":{},"merges":[]})", "model.vocab: empty"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})",
       "merge 0 ('a' and 'b'): 'b' is not in the vocabulary"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":["a a"]})", "'aa' is not in the vocab"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":["a"]})", "one space, found 'a'"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":[["a"]]})", "merge 0: expected"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":[["a",""]]})", "merge 0: an empty token"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1})",
       "model.dropout: 0.1: random merges are not supported"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":[],"continuing_subword_prefix":"##"})",
       "'##' is not supported"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":[],"magic":1})",
       "t.json: model: not understood, and it may change token ids: 'magic'"},
      {"model", R"({"type":"Unigram","vocab":[["a",0]],"unk_id":1})",
       "model.unk_id: expected a whole number from 0 to 0, found 1"},
      {"model", R"({"type":"Unigram","vocab":[["a"]]})", "entry 0: expected [token, score]"},
      {"normalizer", R"({"type":"Precompiled","precompiled_charsmap":""})",
       "t.json: normalizer.type: normalizer 'Precompiled' is not supported"},
      {"normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"X"}]})",
       "t.json: normalizer.normalizers[1].type: normalizer 'X'"},
      {"normalizer", R"({"type":"NFC","why":1})", "t.json: normalizer: not understood"},
      {"normalizer", R"({"type":"Strip","strip_left":1,"strip_right":true})",
       "normalizer.strip_left: expected true or false, found a number"},
      {"normalizer", R"("NFC")", "t.json: normalizer: expected an object, found a string"},
      {"pre_tokenizer", R"({"type":"UnicodeScripts"})", "pre-tokenizer 'UnicodeScripts'"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})",
       "t.json: pre_tokenizer.pattern: the regular expression '(' is not supported"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{},"behavior":"Isolated"})",
       "needs one of 'String' and 'Regex'"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{"String":"a"},"behavior":"Odd"})",
       "unknown behavior 'Odd'"},
      {"pre_tokenizer", R"({"type":"Metaspace","replacement":"__"})", "expected one character"},
      {"pre_tokenizer", R"({"type":"Metaspace","replacement":"_","prepend_scheme":"often"})",
       "unknown scheme 'often'"},
      {"post_processor", R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"B"}}],
                             "special_tokens":{}})",
       "single[0].Sequence.id: 'B'"},
      {"post_processor", R"({"type":"TemplateProcessing","single":[],"special_tokens":{}})",
       "the text does not stand in it"},
      {"post_processor", R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},
        {"Sequence":{"id":"A"}}],"special_tokens":{"x":{"id":"x","ids":[3],"tokens":["x"]}}})",
       "special_tokens.x.ids: 3: expected ids below 3"},
      {"decoder", R"({"type":"CTC"})", "t.json: decoder.type: decoder 'CTC'"},
      {"added_tokens", R"([{"id":7,"content":"<x>"}])",
       "t.json: added_tokens: '<x>' has id 7, where Hugging Face's library would use 3"},
      {"added_tokens", R"([{"id":3,"content":""}])", "added_tokens[0].content: empty"},
      {"added_tokens", R"([{"id":3,"content":"<x>","odd":1}])", "not understood"},
      {"added_tokens", "{}", "added_tokens: expected an array"},
      {"other", "1", "t.json: not understood, and it may change token ids: 'other'"}};
  for (const Case& c : cases)
    EXPECT_THAT(message([&] { parse_tokenizer_json(file_with(c.part, c.value), "t.json"); }),
                HasSubstr(c.words))
        << c.part << ": " << c.value;
  EXPECT_THAT(message([] { parse_tokenizer_json("", "t.json"); }), HasSubstr("t.json: not JSON"));
  EXPECT_THAT(message([] { parse_tokenizer_json("{}", "t.json"); }),
              HasSubstr("t.json: 'model' is missing"));
}

TEST(TokenizerRefusals, ExpressionsThatCannotBeRewritten) {
  for (const char* expression :
       {"(",         ")",     "a)",    "[a",     "[]",         "[a[b]]",    "*",       "a{2,1}",
        "a{1,2}{3}", "\\",    "\\1",   "\\k<x>", "(?<name>a)", "(?R)",      "(*FAIL)", "a(?i)b",
        "\\h",       "\\R",   "\\X",   "\\p{L",  "\\pL",       "\\p{Nope}", "[\\W]",   "[^a&&[b]]",
        "[a&&b]",    "\\xff", "\\u12", "(?#x)",  "[[:alpha:]]"})
    EXPECT_NE(message([&] { to_pcre(expression, "x"); }), "(nothing was refused)") << expression;
}

std::vector<std::string> matches(const std::string& expression, const std::string& text) {
  std::vector<std::string> found;
  Pattern::regex(expression, "x").each_match(text, [&](size_t begin, size_t end) {
    found.push_back(text.substr(begin, end - begin));
  });
  return found;
}

TEST(Pattern, MeansWhatOnigurumaMeans) {
  using List = std::vector<std::string>;
  EXPECT_EQ(matches("\\p{N}{1,3}+", "1234567"), (List{"1234567"}));  // repeated, not possessive
  EXPECT_EQ(matches("\\p{N}{1,3}", "1234567"), (List{"123", "456", "7"}));
  EXPECT_EQ(matches("(?:ab){,2}c", "ababababc"), (List{"ababc"}));
  EXPECT_EQ(matches("^a", "ab\nab"), (List{"a", "a"}));  // every line has a start
  EXPECT_EQ(matches("b$", "ab\nab"), (List{"b", "b"}));
  EXPECT_EQ(matches("[a-z&&[^b]]+", "abcd"), (List{"a", "cd"}));
  EXPECT_EQ(matches("\\s+", "a\xc2\x85\xe1\xa0\x8e b"), (List{"\xc2\x85", " "}));  // not U+180E
  EXPECT_EQ(matches("\\w+", "a\xcc\x81_b\xc2\xb2-c"), (List{"a\xcc\x81_b\xc2\xb2", "c"}));
  EXPECT_EQ(matches("\\bab\\b", "ab abc ab"), (List{"ab", "ab"}));
  EXPECT_EQ(matches("a{x", "a{x"), (List{"a{x"}));
  EXPECT_EQ(matches("x*", "axb"), (List{"", "x", ""}));  // none empty right behind a match
  // A letter of Unicode 16, and one that no version has.
  EXPECT_EQ(matches("\\p{L}+", "a\xe1\xb2\x89z\xcd\xb8y"), (List{"a\xe1\xb2\x89z", "y"}));
  EXPECT_EQ(matches("\\p{Han}+",
                    "\xf0\xb1\x8d\x90\xe6\x97\xa9"
                    "a"),
            (List{"\xf0\xb1\x8d\x90\xe6\x97\xa9"}));
}

TEST(Pattern, APathologicalTextIsAnErrorAndNoHang) {
  const Pattern p = Pattern::regex("(a+)+b|x", "x");
  EXPECT_THAT(message([&] { p.each_match(std::string(50'000, 'a'), [](size_t, size_t) {}); }),
              HasSubstr("the pattern '(a+)+b|x' gave up on a text of 50000 bytes, after offset 0"));
}

// ---- .model files

std::string model_file(const char* name) {
  return read_text(std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name, 1 << 20);
}

TEST(TokenizerRefusals, SentencePieceFiles) {
  const std::string good = model_file("sp_tiny_bpe.model");
  EXPECT_NO_THROW(parse_sentencepiece(good, "m"));
  const auto refused = [](std::string file) {
    return message([&] { parse_sentencepiece(file, "m"); });
  };
  EXPECT_THAT(refused(""), HasSubstr("m: an empty file"));
  EXPECT_THAT(refused("{\"model\": 1}"), HasSubstr("m: not a SentencePiece model"));
  const std::string unknown(
      "\x0a\x07\x0a\x03"
      "unk\x18\x02",
      9);
  const auto piece = [](const std::string& body) {
    return std::string("\x0a") + static_cast<char>(body.size()) + body;
  };
  EXPECT_THAT(refused(piece("\x0a\x01"
                            "a")),
              HasSubstr("without an unknown piece"));
  EXPECT_THAT(refused(unknown + unknown), HasSubstr("piece 'unk' stands twice"));
  EXPECT_THAT(refused(piece(std::string("\x0a\x00", 2))), HasSubstr("piece 0 is empty"));
  EXPECT_THAT(refused(piece(std::string("\x0a\x01\x00", 3))), HasSubstr("holds a zero byte"));
  EXPECT_THAT(refused(piece("\x0a\x01\xff")),
              HasSubstr("byte 0xff at offset 0 is not valid UTF-8"));
  EXPECT_THAT(refused(piece(std::string("\x0a\x01"
                                        "a\x15\x00\x00\xc0\x7f",
                                        8))),
              HasSubstr("its score is not finite"));
  EXPECT_THAT(refused(piece("\x0a\x01"
                            "a\x18\x06")),
              HasSubstr("'a' stands for no byte"));
  EXPECT_THAT(refused(unknown + std::string("\x12\x02\x18\x03", 4)), HasSubstr("a model of words"));
  EXPECT_THAT(refused(unknown + std::string("\x1a\x03\x12\x01x", 5)), HasSubstr("cut short"));
  for (size_t size = 1; size < good.size(); size += 7)
    refused(good.substr(0, size));  // read or refused, and nothing else
}

TEST(TokenizerRefusals, CharacterMapsThatPointOutside) {
  // One block of 256 units, all zero: the root leads to itself, labels match nothing but 0.
  std::string blob("\x00\x04\x00\x00", 4);
  blob += std::string(1024, '\0') + std::string("x\0", 2);
  EXPECT_NO_THROW(check_character_map(blob, "m"));
  EXPECT_THAT(message([&] { check_character_map(blob + "y", "m"); }), HasSubstr("zero byte"));
  std::string far = blob;
  far[4 + 3] = '\x7f';  // the root's offset
  EXPECT_THAT(message([&] { check_character_map(far, "m"); }), HasSubstr("outside its tables"));
  std::string loop = blob;  // unit 1, labelled 1, leads back to units that it belongs to
  loop[4 + 4] = '\x01';
  loop[4 + 5] = '\x04';
  EXPECT_THAT(message([&] { check_character_map(loop, "m"); }), HasSubstr("outside its tables"));
  blob[0] = '\x01';
  EXPECT_THAT(message([&] { check_character_map(blob, "m"); }), HasSubstr("a table of"));
}

}  // namespace
}  // namespace plait
