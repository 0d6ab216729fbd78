// Ids and texts against those of Hugging Face's libraries and SentencePiece: small tokenizers in
// the styles of real ones (tests/fixtures/make_tokenizer_fixtures.py). Real ones are compared by
// tests/tokenizers/compare.py.
#include "plait/tokens/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "plait/io/files.h"
#include "plait/tokens/sentencepiece.h"
#include "plait/tokens/tokenizer_json.h"

namespace plait {
namespace {

using nlohmann::json;

const std::string kFolder = std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

json read_json(const std::string& name) {
  return json::parse(read_text(kFolder + name, int64_t{1} << 24));
}

const std::vector<std::string>& texts() {
  static const auto all = read_json("texts.json").get<std::vector<std::string>>();
  return all;
}

class Fixture : public testing::TestWithParam<const char*> {
 protected:
  std::string name() const { return GetParam(); }
  bool is_sentencepiece() const { return name().starts_with("sp_"); }
  std::unique_ptr<Tokenizer> load() const {
    return load_tokenizer(kFolder + name() + (is_sentencepiece() ? ".model" : ".json"));
  }
};

TEST_P(Fixture, IdsAndTextsAreTheReferences) {
  const auto tokenizer = load();
  const json rows = read_json(name() + ".expected.json")["plain"];
  ASSERT_EQ(rows.size(), texts().size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto ids = rows[i][0].get<std::vector<int32_t>>();
    // The reference was not asked for special tokens in these texts; they have none.
    EXPECT_EQ(tokenizer->encode(texts()[i], {.add_special = false, .parse_special = true}), ids)
        << "text " << i << ": " << texts()[i];
    const std::string text = rows[i][1].is_null() ? texts()[i] : rows[i][1].get<std::string>();
    EXPECT_EQ(tokenizer->decode(ids), text) << "text " << i;
  }
}

TEST_P(Fixture, SpecialTokensAreTheReferences) {
  const auto tokenizer = load();
  const json expected = read_json(name() + ".expected.json");
  for (const json& row : expected.at("special")) {
    const std::string text = row[0];
    const auto ids = row[1].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids), row[2].is_null() ? text : row[2].get<std::string>()) << text;
    EXPECT_EQ(tokenizer->decode(ids, true), row[3].is_null() ? text : row[3].get<std::string>())
        << text;
  }
}

TEST_P(Fixture, EveryIdIsBelowTheVocabularyAndDecodes) {
  const auto tokenizer = load();
  for (int32_t id = 0; id < tokenizer->vocabulary(); ++id) {
    const auto token = tokenizer->token(id);
    if (token) {
      EXPECT_EQ(tokenizer->id(*token), id) << *token;
    }
    const std::string text = tokenizer->decode(std::vector<int32_t>{id});
    EXPECT_FALSE(find_invalid_utf8(text)) << id;
  }
  EXPECT_FALSE(tokenizer->token(-1));
  EXPECT_FALSE(tokenizer->token(static_cast<int32_t>(tokenizer->vocabulary())));
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{-1}), std::runtime_error);
  EXPECT_THROW(
      tokenizer->decode(std::vector<int32_t>{static_cast<int32_t>(tokenizer->vocabulary())}),
      std::runtime_error);
}

TEST_P(Fixture, ThreadsGetTheSameIds) {
  const auto tokenizer = load();
  std::vector<std::vector<int32_t>> alone;
  for (const std::string& t : texts()) alone.push_back(tokenizer->encode(t));
  std::vector<int> different(3, 0);
  std::vector<std::thread> threads;
  for (size_t k = 0; k < different.size(); ++k)
    threads.emplace_back([&, k] {
      for (size_t i = 0; i < texts().size(); ++i) {
        const size_t at = (i * (2 * k + 1)) % texts().size();
        different[k] += tokenizer->encode(texts()[at]) != alone[at] ? 1 : 0;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(different, std::vector<int>(different.size(), 0));
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Fixture,
                         testing::Values("gpt2", "roberta", "llama3", "qwen2", "o200k", "cl100k",
                                         "kimi", "deepseek", "falcon", "starcoder", "clip",
                                         "llama2", "mistral", "gemma", "no_fallback", "unigram",
                                         "sp_bpe", "sp_unigram", "sp_map"),
                         [](const auto& info) { return std::string(info.param); });

// ---- long texts, which take other ways through the code than short ones

std::string words(size_t bytes, std::string_view between) {
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i) {
    text += i % 3 == 0 ? "hello" : i % 3 == 1 ? "th\xc3\xa9" : std::to_string(i);
    text += between;
  }
  return text;
}

TEST(Tokenizer, ALongTextIsItsShortPartsOneAfterTheOther) {
  // Words end at a line feed for all of these, so lines can be encoded one by one.
  for (const char* name : {"gpt2", "llama3", "qwen2"}) {
    const auto tokenizer = load_tokenizer(kFolder + name + ".json");
    std::string whole;
    std::vector<int32_t> ids;
    for (int i = 0; i < 200; ++i) {
      const std::string line = words(40, i % 2 == 0 ? " " : "") + "x\n";
      whole += line;
      const auto part = tokenizer->encode(line, {.add_special = false});
      ids.insert(ids.end(), part.begin(), part.end());
    }
    EXPECT_EQ(tokenizer->encode(whole, {.add_special = false}), ids) << name;
  }
}

TEST(Tokenizer, TextsWithoutSpacesTakeNoQuadraticTime) {
  for (const char* name : {"gpt2.json", "llama2.json", "gemma.json", "unigram.json", "sp_bpe.model",
                           "sp_unigram.model", "clip.json"}) {
    const auto tokenizer = load_tokenizer(kFolder + name);
    for (const std::string& text : {std::string(40'000, 'a'), words(40'000, ""),
                                    std::string(40'000, ' '), std::string(40'000, '\n')}) {
      const auto ids = tokenizer->encode(text, {.add_special = false});
      if (text[0] == 'h') {  // some drop spaces
        EXPECT_GT(ids.size(), 1000u) << name;
      }
    }
  }
}

TEST(Tokenizer, MarksInAnyOrderTakeNoQuadraticTime) {
  const auto tokenizer = load_tokenizer(kFolder + "qwen2.json");
  std::string marks = "a";
  for (int i = 0; i < 20'000; ++i) marks += "\xcc\x81\xcc\xa7";  // above, below, above, ...
  EXPECT_GT(tokenizer->encode(marks).size(), 1000u);
}

// ---- broken input

TEST(Tokenizer, BrokenUtf8IsRefusedWithItsPlace) {
  const auto tokenizer = load_tokenizer(kFolder + "gpt2.json");
  try {
    tokenizer->encode("abc\xff");
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(),
                 "text to tokenize: byte 0xff at offset 3 is not valid UTF-8; convert the text to "
                 "UTF-8, or use the byte tokenizer");
  }
}

TEST(Tokenizer, FindInvalidUtf8) {
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("aé€😀\xf4\x8f\xbf\xbf"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("a\x80"), 1u);
  EXPECT_EQ(find_invalid_utf8("a\xc3"), 1u);
  EXPECT_EQ(find_invalid_utf8("\xc0\xaf"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("x\xe0\x9f\xbf"), 1u);     // overlong
  EXPECT_EQ(find_invalid_utf8("x\xed\xa0\x80"), 1u);     // surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("ab\xe2\x82x"), 2u);
}

TEST(Tokenizer, ACharacterWithoutATokenIsAnError) {
  const std::string path = testing::TempDir() + "/no_unknown.json";
  write_text(path, R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
                                 "merges": ["a b"]}})");
  const auto tokenizer = load_tokenizer(path);
  EXPECT_EQ(tokenizer->encode("abba"), (std::vector<int32_t>{2, 1, 0}));
  EXPECT_THROW(tokenizer->encode("abc"), std::runtime_error);
}

// ---- bytes

TEST(Tokenizer, Bytes) {
  const auto t = byte_tokenizer();
  EXPECT_EQ(t->kind(), "bytes");
  EXPECT_EQ(t->vocabulary(), 256);
  const std::string any("\x00\xff\x80z", 4);
  EXPECT_EQ(t->encode(any), (std::vector<int32_t>{0, 255, 128, 'z'}));
  EXPECT_EQ(t->decode(t->encode(any)), any);
  EXPECT_THROW(t->decode(std::vector<int32_t>{256}), std::runtime_error);
  EXPECT_FALSE(t->bos());
  const uint64_t before = t->digest();
  SpecialIds ids;
  ids.eos = 0;
  t->set_special_ids(ids);
  EXPECT_NE(t->digest(), before);
  ids.eos = 256;
  EXPECT_THROW(t->set_special_ids(ids), std::runtime_error);
}

// ---- unigrams

// "a aaa a" and "a a aaa" have the same scores in another order; which is found better depends on
// the last bits of the scores as the library reads them (its ids: tokenizers 0.23.3).
TEST(Tokenizer, UnigramTiesGoTheLibrarysWay) {
  const auto t = parse_tokenizer_json(R"({"added_tokens":[],"model":{"type":"Unigram","unk_id":0,
    "vocab":[["<unk>",0.0],["a",-9.279482366011111],["aa",-18.824690183651363],
    ["aaa",-20.824690183651363]],"byte_fallback":false}})",
                                      "t.json");
  EXPECT_EQ(t->encode("aaaaa"), (std::vector<int32_t>{1, 1, 3}));
}

// ---- added tokens that are found in normalized text

std::unique_ptr<Tokenizer> with_added(const std::string& normalizer) {
  json j = json::parse(R"({"model":{"type":"BPE","vocab":{"\u2581":0,"a":1,"b":2," ":3,"<X>":4},
    "merges":[]},"added_tokens":[{"id":4,"content":"<X>","normalized":true,"special":false,
    "single_word":false,"lstrip":false,"rstrip":false}],"decoder":{"type":"Sequence","decoders":[
    {"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"Fuse"},
    {"type":"Strip","content":" ","start":1,"stop":0}]}})");
  j["normalizer"] = json::parse(normalizer);
  return parse_tokenizer_json(j.dump(), "t.json");
}

// Decoded is the form that stood in the text (tokenizers 0.23): the space that Llama's normalizer
// puts before it stays, and what it stands for is in lower case.
TEST(Tokenizer, AddedTokensAreDecodedAsTheirNormalForm) {
  const auto llama = with_added(R"({"type":"Sequence","normalizers":[
    {"type":"Prepend","prepend":"\u2581"},
    {"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]})");
  EXPECT_EQ(llama->encode("a <X> b"), (std::vector<int32_t>{0, 1, 4, 0, 2}));
  EXPECT_EQ(llama->decode(std::vector<int32_t>{0, 1, 4, 0, 2}), "a <X> b");
  const auto lower = with_added(R"({"type":"Lowercase"})");
  EXPECT_EQ(lower->encode("a <x><X>"), (std::vector<int32_t>{1, 3, 4, 4}));
  EXPECT_EQ(lower->decode(std::vector<int32_t>{1, 3, 4}), "a <x>");
  EXPECT_EQ(lower->token(4), "<X>");
  EXPECT_EQ(lower->id("<X>"), 4);
}

// Letters of Unicode 16 and 17.
TEST(Tokenizer, LowerCaseOfNewerCharacters) {
  const auto t = parse_tokenizer_json(R"({"added_tokens":[],"normalizer":{"type":"Lowercase"},
    "model":{"type":"BPE","merges":[],
    "vocab":{"\ud803\udd70":0,"\ua7cf":1,"\ua7d5":2,"\ud81b\udebb":3,"\ud81b\uded3":4}}})",
                                      "t.json");
  const std::string upper = "\U00010d50\ua7ce\ua7d4\U00016ea0\U00016eb8";
  EXPECT_EQ(t->encode(upper), (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

// ---- SentencePiece around special tokens

TEST(Tokenizer, SentencePieceSpecialTokens) {
  const auto t = load_tokenizer(kFolder + "sp_bpe.model");
  EXPECT_EQ(t->kind(), "sentencepiece");
  ASSERT_TRUE(t->bos() && t->eos() && t->unk());
  const auto hello = t->encode("hello", {.add_special = false});
  const auto with_bos = t->encode("hello");
  EXPECT_EQ(with_bos.front(), *t->bos());
  EXPECT_EQ(std::vector<int32_t>(with_bos.begin() + 1, with_bos.end()), hello);
  EXPECT_EQ(t->encode("<s></s>", {.add_special = false}),
            (std::vector<int32_t>{*t->bos(), *t->eos()}));
  EXPECT_GT(t->encode("<s>", {.add_special = false, .parse_special = false}).size(), 1u);
  // Behind a special token, text gets no leading space of its own.
  const auto behind = t->encode("<s>hello", {.add_special = false});
  EXPECT_NE(std::vector<int32_t>(behind.begin() + 1, behind.end()), hello);
  EXPECT_EQ(t->decode(behind), "<s>hello");
  EXPECT_EQ(t->decode(with_bos, true), "hello");

  const std::string file = read_text(kFolder + "sp_bpe.model", 1 << 20);
  const auto legacy = parse_sentencepiece(file, "m", {.legacy = true, .added = {}});
  const auto old = legacy->encode("<s>hello", {.add_special = false});
  EXPECT_EQ(std::vector<int32_t>(old.begin() + 1, old.end()), hello);
  const auto eos = parse_sentencepiece(file, "m", {.add_bos = false, .add_eos = true, .added = {}});
  EXPECT_EQ(eos->encode("").back(), *eos->eos());
  EXPECT_NE(eos->digest(), t->digest());
  EXPECT_NE(legacy->digest(), t->digest());
}

// Hugging Face's libraries find every control piece in a text; Google's library finds none.
TEST(Tokenizer, SentencePieceControlPiecesAreSpecialTokens) {
  const std::string file = read_text(kFolder + "sp_bpe.model", 1 << 20);
  const auto plain = parse_sentencepiece(file, "m");
  const auto more = parse_sentencepiece(file + "\x0a\x0a\x0a\x06[INST]\x18\x03", "m");
  const auto id = static_cast<int32_t>(plain->vocabulary());
  ASSERT_EQ(more->vocabulary(), id + 1);
  EXPECT_TRUE(more->is_special(id));
  EXPECT_EQ(more->id("[INST]"), id);
  std::vector<int32_t> expected = plain->encode("hello ");
  expected.push_back(id);
  EXPECT_EQ(more->encode("hello [INST]"), expected);
  EXPECT_EQ(more->encode("hello [INST]", {.parse_special = false}), plain->encode("hello [INST]"));
  EXPECT_EQ(more->decode(more->encode("hello [INST]", {.add_special = false})), "hello [INST]");
  EXPECT_EQ(more->decode(expected, true), "hello ");
  AddedToken given{.content = "[INST]", .id = id, .lstrip = true, .normalized = false};
  const auto strips = parse_sentencepiece(file + "\x0a\x0a\x0a\x06[INST]\x18\x03", "m",
                                          {.added = {given}});  // what a folder says goes first
  EXPECT_EQ(strips->decode(strips->encode("hello [INST]", {.add_special = false})), "hello[INST]");
  EXPECT_FALSE(strips->is_special(id));
}

}  // namespace
}  // namespace plait
