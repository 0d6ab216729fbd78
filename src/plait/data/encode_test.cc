#include "plait/data/encode.h"

#include <gmock/gmock.h>

#include <array>

#include "plait/base/error.h"

namespace plait {
namespace {

using testing::HasSubstr;

// Greedy longest match over bytes and a few words, so that pieces of a text may give other ids
// than the whole; <s> before a text, </s> as eos.
class WordTokenizer final : public Tokenizer {
 public:
  WordTokenizer() { set_special_ids({.bos = 256, .eos = 257, .pad = {}, .unk = {}}); }
  std::string_view kind() const override { return "words"; }
  int64_t vocabulary() const override { return 256 + static_cast<int64_t>(kWords.size()); }
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& o) const override {
    std::vector<int32_t> ids;
    if (o.add_special) ids.push_back(256);
    for (size_t at = 0; at < text.size();) {
      size_t best = 1;
      auto id = static_cast<int32_t>(static_cast<unsigned char>(text[at]));
      for (size_t w = o.parse_special ? 0 : 2; w < kWords.size(); ++w)
        if (text.substr(at).starts_with(kWords[w]) && kWords[w].size() > best) {
          best = kWords[w].size();
          id = static_cast<int32_t>(256 + w);
        }
      ids.push_back(id);
      at += best;
    }
    return ids;
  }
  std::string decode(std::span<const int32_t> ids, bool) const override {
    std::string text;
    for (const int32_t id : ids)
      text += id < 256 ? std::string(1, static_cast<char>(id))
                       : std::string(kWords[static_cast<size_t>(id - 256)]);
    return text;
  }
  std::optional<int32_t> id(std::string_view) const override { return {}; }
  std::optional<std::string> token(int32_t) const override { return {}; }
  bool is_special(int32_t id) const override { return id == 256 || id == 257; }
  uint64_t digest() const override { return 1; }

 private:
  static constexpr std::array<std::string_view, 6> kWords = {"<s>", "</s>", ": y",
                                                             "es",  "A:",   "\n\n"};
};

std::string chatml(const Json& messages, const Json& tools, bool open) {
  std::string text = tools.is_null() ? "" : "[tools " + tools.dump() + "]";
  for (const Json& m : messages)
    text +=
        "<" + m.at("role").get<std::string>() + ">" + m.at("content").get<std::string>() + "</s>\n";
  return text + (open ? "<assistant>" : "");
}

class Encoding : public testing::Test {
 protected:
  std::vector<TokenDocument> encode(const std::string& json) {
    const Json record = Json::parse(json);
    return Encoder(config_, tokenizer_, renderer_).record(shape_of(record), record);
  }
  // The document, with what is learned in brackets.
  std::string marked(const TokenDocument& d) const {
    std::string text;
    for (size_t i = 0; i < d.ids.size(); ++i) {
      if (d.learn[i] != 0 && (i == 0 || d.learn[i - 1] == 0)) text += "[";
      text += tokenizer_.decode({&d.ids[i], 1}, false);
      if (d.learn[i] != 0 && (i + 1 == d.ids.size() || d.learn[i + 1] == 0)) text += "]";
    }
    return text;
  }
  std::string marked(const std::string& json) { return marked(encode(json).at(0)); }
  std::string error(const std::string& json) {
    try {
      encode(json);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  WordTokenizer tokenizer_;
  DataConfig config_;
  ChatRenderer renderer_{chatml, 1};
};

TEST_F(Encoding, Text) {
  EXPECT_EQ(marked(R"({"text": "hi"})"), "[<s>hi</s>]");
  EXPECT_EQ(marked(R"({"text": "hi</s>"})"), "[<s>hi</s>]");  // not twice
  EXPECT_TRUE(encode(R"({"text": ""})").empty());
  config_.add_special = config_.add_eos = false;
  EXPECT_EQ(marked(R"({"text": "hi"})"), "[hi]");
}

TEST_F(Encoding, SpecialTokensInTextOnlyWhereAsked) {
  config_.add_special = config_.add_eos = false;
  EXPECT_EQ(encode(R"({"text": "a</s>"})")[0].ids.size(), 2u);
  config_.parse_special = false;
  EXPECT_EQ(encode(R"({"text": "a</s>"})")[0].ids.size(), 5u);
}

TEST_F(Encoding, PromptIsMasked) {
  EXPECT_EQ(marked(R"({"prompt": "Q", "completion": "A"})"), "<s>Q[A</s>]");
  EXPECT_EQ(marked(R"({"prompt": "", "completion": "A"})"), "[<s>A</s>]");
  EXPECT_EQ(marked(R"({"prompt": "Q", "completion": ""})"), "<s>Q[</s>]");
}

TEST_F(Encoding, TokenAcrossTheBorderIsLearnedAndIdsAreThoseOfTheWhole) {
  const TokenDocument d = encode(R"({"prompt": "Q:", "completion": " yes"})")[0];
  EXPECT_EQ(d.ids, tokenizer_.encode("<s>Q: yes</s>", {false, true}));  // ": y" and "es"
  EXPECT_EQ(marked(d), "<s>Q[: yes</s>]");
}

TEST_F(Encoding, OnlyTheAssistantIsLearned) {
  EXPECT_EQ(marked(R"({"messages": [{"role": "user", "content": "a"},
                                    {"role": "assistant", "content": "yes"},
                                    {"role": "user", "content": "b"},
                                    {"role": "assistant", "content": "no"}]})"),
            "<user>a</s>\n<assistant>[yes</s>\n]<user>b</s>\n<assistant>[no</s>\n]");
  EXPECT_EQ(marked(R"({"messages": [{"role": "user", "content": "a"}]})"), "<user>a</s>\n");
  EXPECT_EQ(marked(R"({"tools": [{"b": 1, "a": 2}],
                       "messages": [{"role": "user", "content": "a"},
                                    {"role": "assistant", "content": "x"}]})"),
            "[tools [{\"b\":1,\"a\":2}]]<user>a</s>\n<assistant>[x</s>\n]");
}

TEST_F(Encoding, PromptAndCompletionAsMessages) {
  EXPECT_EQ(marked(R"({"prompt": [{"role": "user", "content": "a"},
                                  {"role": "assistant", "content": "old"},
                                  {"role": "user", "content": "b"}],
                       "completion": [{"role": "assistant", "content": "new"}]})"),
            "<user>a</s>\n<assistant>old</s>\n<user>b</s>\n<assistant>[new</s>\n]");
}

TEST_F(Encoding, TemplateThatOpensAnAnswerOtherwise) {
  // The opening has a word that the history lacks: what both share counts as the opening.
  renderer_.render = [](const Json& m, const Json& t, bool open) {
    return chatml(m, t, open) + (open ? "<think>" : "");
  };
  EXPECT_EQ(marked(R"({"messages": [{"role": "user", "content": "a"},
                                    {"role": "assistant", "content": "yes"}]})"),
            "<user>a</s>\n<assistant>[yes</s>\n]");
}

TEST_F(Encoding, TemplateThatRewritesThePastIsRefused) {
  renderer_.render = [](const Json& m, const Json&, bool open) {
    return fmt::format("[{} messages]", m.size()) + chatml(m, Json(), open);
  };
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": "a"},
                                     {"role": "assistant", "content": "yes"},
                                     {"role": "user", "content": "b"}]})"),
              HasSubstr("in another way when others follow (from byte 1 on"));
}

TEST_F(Encoding, Preferences) {
  auto pair = encode(R"({"prompt": "Q", "chosen": "good", "rejected": "bad"})");
  ASSERT_EQ(pair.size(), 2u);
  EXPECT_EQ(marked(pair[0]), "<s>Q[good</s>]");
  EXPECT_EQ(marked(pair[1]), "<s>Q[bad</s>]");
  const std::string user = R"({"role": "user", "content": "a"})";
  const std::string good = R"({"role": "assistant", "content": "g"})";
  const std::string bad = R"({"role": "assistant", "content": "b"})";
  for (const std::string& json :
       {R"({"prompt": [)" + user + R"(], "chosen": [)" + good + R"(], "rejected": [)" + bad + "]}",
        R"({"chosen": [)" + user + "," + good + R"(], "rejected": [)" + user + "," + bad + "]}",
        R"({"prompt": "a", "chosen": [)" + user + "," + good + R"(], "rejected": [)" + user + "," +
            bad + "]}"}) {
    pair = encode(json);
    EXPECT_EQ(marked(pair[0]), "<user>a</s>\n<assistant>[g</s>\n]");
    EXPECT_EQ(marked(pair[1]), "<user>a</s>\n<assistant>[b</s>\n]");
  }
}

TEST_F(Encoding, SaysWhatIsWrong) {
  EXPECT_THAT(error(R"([1])"), HasSubstr("a list; needs an object"));
  EXPECT_THAT(error(R"({"content": 1, "id": 2})"),
              HasSubstr("the keys 'content', 'id'; needs 'text'"));
  EXPECT_THAT(error(R"({})"), HasSubstr("the keys (none)"));
  EXPECT_THAT(error(R"({"text": 7})"), HasSubstr("key 'text' is a number; needs a string"));
  EXPECT_THAT(error(R"({"prompt": "a"})"), HasSubstr("key 'completion' is missing"));
  EXPECT_THAT(error(R"({"prompt": null, "completion": "b"})"), HasSubstr("'prompt' is null"));
  EXPECT_THAT(error(R"({"messages": "a"})"), HasSubstr("'messages' is a string; needs a list"));
  EXPECT_THAT(error(R"({"messages": []})"), HasSubstr("no messages"));
  EXPECT_THAT(error(R"({"messages": [1]})"), HasSubstr("messages[0] is a number"));
  EXPECT_THAT(error(R"({"messages": [{"content": "a"}]})"), HasSubstr("messages[0] has no 'role'"));
  EXPECT_THAT(error(R"({"messages": [{"role": "user"}]})"), HasSubstr("has no 'content'"));
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": 1}]})"),
              HasSubstr("'content' is a number"));
  EXPECT_THAT(error(R"({"chosen": "a"})"), HasSubstr("'rejected' is missing"));
  EXPECT_THAT(error(R"({"chosen": "a", "rejected": 1})"), HasSubstr("'rejected' is a number"));
  EXPECT_THAT(error(R"({"chosen": [], "rejected": []})"), HasSubstr("no messages"));
  renderer_.render = nullptr;
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": "a"}]})"),
              HasSubstr("no chat template"));
}

TEST_F(Encoding, ARecordOfAnotherShapeIsRefused) {
  const Encoder encoder(config_, tokenizer_, renderer_);
  try {
    encoder.record(Shape::text, Json::parse(R"({"messages": []})"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("chat messages, where the file began with texts"));
  }
}

}  // namespace
}  // namespace plait
