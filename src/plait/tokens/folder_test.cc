// load_tokenizer_folder: the files beside a tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "plait/base/error.h"
#include "plait/io/files.h"
#include "plait/tokens/tokenizer.h"
#include "plait/tokens/tokenizer_files.h"

namespace plait {
namespace {

using testing::HasSubstr;
using Ids = std::vector<int32_t>;

const std::string kFixtures = std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/tokenizer_folder_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void put(const std::string& name, const std::string& text) {
    write_text(path_ + "/" + name, text);
  }
  void put_fixture(const std::string& name, const std::string& as) {
    put(as, read_text(kFixtures + name, 1 << 20));
  }
  std::string refusal() const {
    try {
      load_tokenizer_folder(path_);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  std::string path_;
};

TEST_F(Folder, SpecialTokensAndTemplate) {
  put_fixture("llama3.json", "tokenizer.json");
  put("tokenizer_config.json", R"({"bos_token":"<|begin|>","eos_token":{"content":"<|end|>",
      "lstrip":false},"chat_template":"{{ x }}","unk_token":null})");
  put("special_tokens_map.json", R"({"pad_token":"<|end|>","bos_token":"other"})");
  const TokenizerFolder f = load_tokenizer_folder(path_);
  EXPECT_EQ(f.bos_token, "<|begin|>");
  EXPECT_EQ(f.eos_token, "<|end|>");
  EXPECT_EQ(f.chat_template, "{{ x }}");
  EXPECT_EQ(f.special_tokens.at("pad_token"), "<|end|>");
  EXPECT_EQ(f.tokenizer->bos(), f.tokenizer->id("<|begin|>"));
  EXPECT_EQ(f.tokenizer->eos(), f.tokenizer->id("<|end|>"));
  EXPECT_EQ(f.tokenizer->pad(), f.tokenizer->eos());
  EXPECT_FALSE(f.tokenizer->unk());
  EXPECT_NE(f.tokenizer->digest(), load_tokenizer(path_ + "/tokenizer.json")->digest());
}

TEST_F(Folder, WithoutConfigThereIsJustTheTokenizer) {
  put_fixture("gpt2.json", "tokenizer.json");
  const TokenizerFolder f = load_tokenizer_folder(path_);
  EXPECT_EQ(f.chat_template, "");
  EXPECT_FALSE(f.tokenizer->bos());
  EXPECT_EQ(load_tokenizer(path_)->encode("hello"), f.tokenizer->encode("hello"));
}

TEST_F(Folder, ExplicitBosAndEosReplaceThePostProcessor) {
  put_fixture("llama3.json", "tokenizer.json");
  const std::string tokens = R"("bos_token":"<|begin|>","eos_token":"<|end|>")";
  const Ids plain = load_tokenizer(path_)->encode("hello", {.add_special = false});
  const auto ids_with = [&](const std::string& keys) {
    put("tokenizer_config.json", "{" + tokens + keys + "}");
    return load_tokenizer(path_)->encode("hello");
  };
  const auto t = load_tokenizer(path_);
  const int32_t bos = *t->id("<|begin|>"), eos = *t->id("<|end|>");
  const auto around = [&](Ids before, const Ids& after) {
    before.insert(before.end(), plain.begin(), plain.end());
    before.insert(before.end(), after.begin(), after.end());
    return before;
  };
  EXPECT_EQ(ids_with(""), around({bos}, {}));  // as the file says
  EXPECT_EQ(ids_with(",\"add_bos_token\":false"), plain);
  EXPECT_EQ(ids_with(",\"add_eos_token\":true"), around({}, {eos}));
  EXPECT_EQ(ids_with(",\"add_bos_token\":true,\"add_eos_token\":true"), around({bos}, {eos}));
}

TEST_F(Folder, TokensOfTheConfigAreAdded) {
  put_fixture("gpt2.json", "tokenizer.json");
  const int64_t size = load_tokenizer(path_)->vocabulary();
  const auto config = [&](int64_t id) {
    put("tokenizer_config.json", R"({"added_tokens_decoder":{")" + std::to_string(id) +
                                     R"(":{"content":"<new>","special":true}}})");
  };
  config(size);
  const auto t = load_tokenizer(path_);
  EXPECT_EQ(t->vocabulary(), size + 1);
  EXPECT_EQ(t->encode("<new>"), Ids{static_cast<int32_t>(size)});
  config(size + 5);
  EXPECT_THAT(refusal(), HasSubstr("'<new>' has id"));
}

TEST_F(Folder, SentencePiece) {
  put_fixture("sp_bpe.model", "tokenizer.model");
  put("tokenizer_config.json", R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":false,
      "add_eos_token":true,"bos_token":"<s>","eos_token":"</s>","unk_token":"<unk>"})");
  const auto t = load_tokenizer(path_);
  EXPECT_EQ(t->encode("hello").back(), *t->eos());
  EXPECT_NE(t->encode("hello").front(), *t->bos());
  put("tokenizer_config.json", R"({"tokenizer_class":"XLMRobertaTokenizer"})");
  EXPECT_THAT(refusal(), HasSubstr("tokenizer_class 'XLMRobertaTokenizer'"));
}

TEST_F(Folder, TemplateFiles) {
  put_fixture("gpt2.json", "tokenizer.json");
  put("tokenizer_config.json", R"({"chat_template":[{"name":"tool","template":"t"},
      {"name":"default","template":"d"}]})");
  EXPECT_EQ(load_tokenizer_folder(path_).chat_template, "d");
  put("chat_template.json", R"({"chat_template":"j"})");
  EXPECT_EQ(load_tokenizer_folder(path_).chat_template, "j");
  put("chat_template.jinja", "{{ messages }}\n");
  EXPECT_EQ(load_tokenizer_folder(path_).chat_template, "{{ messages }}\n");
}

TEST_F(Folder, BytesAsATokenizerJson) {
  for (const auto& [name, text] : tokenizer_files("bytes")) put(name, text);
  const auto bytes = load_tokenizer_folder(path_).tokenizer;
  EXPECT_EQ(bytes->kind(), "bytes");
  EXPECT_EQ(bytes->digest(), byte_tokenizer()->digest());
  const std::string broken = "\xff\x80 a\n";
  EXPECT_EQ(bytes->decode(bytes->encode(broken)), broken);
  // With anything changed it is what it says: a BPE, which has the same ids for text.
  std::string changed = byte_tokenizer_json();
  const std::string from = "\"ignore_merges\": false";
  ASSERT_NE(changed.find(from), std::string::npos);
  changed.replace(changed.find(from), from.size(), "\"ignore_merges\": true");
  put("tokenizer.json", changed);
  const auto bpe = load_tokenizer_folder(path_).tokenizer;
  EXPECT_EQ(bpe->kind(), "bpe");
  EXPECT_EQ(bpe->vocabulary(), 256);
  const std::string text = "In the  beginning\n\t\xc3\xa9 \xe6\x97\xa5 don't\x01";
  EXPECT_EQ(bpe->encode(text), byte_tokenizer()->encode(text));
  EXPECT_EQ(bpe->decode(bpe->encode(text)), text);
}

TEST_F(Folder, FilesOfATokenizer) {
  put_fixture("clip.json", "tokenizer.json");
  put("chat_template.jinja", "{{ messages }}");
  put("config.json", "{}");
  put("model.safetensors", "x");
  const auto files = tokenizer_files(path_);
  EXPECT_EQ(files.size(), 2u);
  EXPECT_EQ(files.at("chat_template.jinja"), "{{ messages }}");
  EXPECT_EQ(tokenizer_files(path_ + "/tokenizer.json").at("tokenizer.json"),
            files.at("tokenizer.json"));
}

TEST_F(Folder, Refusals) {
  EXPECT_THAT(refusal(), HasSubstr("holds no tokenizer; expected tokenizer.json"));
  put_fixture("gpt2.json", "tokenizer.json");
  put("tokenizer_config.json", R"({"eos_token":"<none>"})");
  EXPECT_THAT(refusal(), HasSubstr("eos_token '<none>' is not in the tokenizer's vocabulary"));
  put("tokenizer_config.json", R"({"eos_token":5})");
  EXPECT_THAT(refusal(), HasSubstr("tokenizer_config.json: eos_token: expected a token"));
  put("tokenizer_config.json", R"({"add_bos_token":"yes"})");
  EXPECT_THAT(refusal(), HasSubstr("add_bos_token: expected true or false, found a string"));
  put("tokenizer_config.json", R"({"chat_template":[]})");
  EXPECT_THAT(refusal(), HasSubstr("without an entry named 'default'"));
  put("tokenizer_config.json", R"({"added_tokens_decoder":{"x":{"content":"a"}}})");
  EXPECT_THAT(refusal(), HasSubstr("added_tokens_decoder.x: expected an id"));
  put("tokenizer_config.json", "[]");
  EXPECT_THAT(refusal(), HasSubstr("tokenizer_config.json: expected an object"));
  EXPECT_THROW(load_tokenizer(path_ + "/none"), Error);
  put("vocab.txt", "a");
  EXPECT_THROW(load_tokenizer(path_ + "/vocab.txt"), Error);
}

}  // namespace
}  // namespace plait
