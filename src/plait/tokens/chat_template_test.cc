#include "plait/tokens/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plait/base/error.h"
#include "plait/io/files.h"

namespace plait {
namespace {

using Json = TemplateInputs::Json;
using testing::HasSubstr;
using testing::StartsWith;

std::string render(const std::string& text, const TemplateInputs& in = {},
                   const TemplateLimits& limits = {}) {
  TemplateInputs inputs = in;
  if (inputs.messages.is_null()) inputs.messages = Json::array();
  return ChatTemplate::parse(text, "t").render(inputs, limits);
}

std::string error_of(const std::string& text, const TemplateInputs& in = {},
                     const TemplateLimits& limits = {}) {
  try {
    return "rendered: " + render(text, in, limits);
  } catch (const Error& e) {
    return e.what();
  }
}

const Json& fixtures() {
  static const Json all = Json::parse(
      read_text(std::string(PLAIT_SOURCE_DIR) + "/tests/fixtures/templates.json", 1 << 22));
  return all;
}

// Renders and compares with what transformers gave: text, spans, and where it refused, a refusal.
void hold(const std::string& text, const TemplateInputs& inputs, const Json& expected) {
  if (expected.contains("error")) {
    const std::string error = error_of(text, inputs);
    EXPECT_THAT(error, StartsWith("t:"));
    EXPECT_THAT(error, HasSubstr(expected["error"].get<std::string>()));
    return;
  }
  const RenderedChat chat = ChatTemplate::parse(text, "t").render_spans(inputs);
  EXPECT_EQ(chat.text, expected["text"].get<std::string>());
  Json spans = Json::array();
  for (const auto& [begin, end] : chat.generated) spans.push_back({begin, end});
  if (ChatTemplate::parse(text, "t").marks_generation()) {
    EXPECT_EQ(spans, expected["spans"]);
  }
}

TemplateInputs inputs_of(const Json& messages) {
  TemplateInputs in;
  in.messages = messages;
  in.now = fixtures()["now"].get<int64_t>();
  for (const auto& [name, value] : fixtures()["more"].items()) in.more[name] = value;
  return in;
}

TEST(ChatTemplate, RendersConversationsAsTransformersDoes) {
  int64_t compared = 0;
  for (const Json& c : fixtures()["cases"]) {
    const Json& chat = fixtures()["conversations"][c["conversation"].get<std::string>()];
    TemplateInputs in = inputs_of(chat["messages"]);
    if (chat.contains("tools")) in.tools = chat["tools"];
    for (const auto& [name, value] : fixtures()["settings"][c["setting"].get<size_t>()].items()) {
      if (name == "add_generation_prompt")
        in.add_generation_prompt = value.get<bool>();
      else
        in.more[name] = value;
    }
    SCOPED_TRACE(c["template"].get<std::string>() + " with " + c["conversation"].dump());
    hold(fixtures()["templates"][c["template"].get<std::string>()].get<std::string>(), in, c);
    ++compared;
  }
  EXPECT_GT(compared, 250);
}

TEST(ChatTemplate, SyntaxMeansWhatItMeansToJinja) {
  for (const Json& c : fixtures()["syntax"]) {
    TemplateInputs in = inputs_of(fixtures()["short"]);
    in.add_generation_prompt = true;
    SCOPED_TRACE(c["template"].get<std::string>());
    hold(c["template"].get<std::string>(), in, c);
  }
}

TEST(ChatTemplate, ErrorsSayWhere) {
  const std::pair<const char*, const char*> kAll[] = {
      {"a\n{% include 'x' %}", "t:2:4: the tag 'include' is not supported"},
      {"{% block x %}{% endblock %}", "t:1:4: the tag 'block' is not supported"},
      {"{{ x | pprint }}", "t:1:8: the filter 'pprint' is not supported"},
      {"{{ x is green }}", "t:1:9: the test 'green' is not supported"},
      {"é {{ x.__class__ }}", "t:1:8: attributes such as '__class__' are not supported"},
      {"{{ x.mro() }}", "t:1:6: the method 'mro' is not supported"},
      {"{{ cycler(1) }}", "t:1:4: the function 'cycler' is not supported"},
      {"{% for a in b recursive %}{% endfor %}", "t:1:15: recursive loops are not supported"},
      {"{% if a %}\n{% for b in c %}\n{% endif %}", "t:3:4: unknown tag 'endif'"},
      {"{% if a %}\n\n", "t:1:4: 'if' is not closed"},
      {"{% break %}", "t:1:4: 'break' outside of a loop"},
      {"{% set true = 1 %}", "t:1:8: 'true' cannot be assigned to"},
      {"\n\n  {{ 'a\n }}", "t:3:6: this string has no end"},
      {"{{ 1", "t:1:1: this tag has no end '}}'"},
      {"{# a", "t:1:1: this comment has no end '#}'"},
      {"{% raw %}", "t:1:1: this raw block has no {% endraw %}"},
      {"{{ a ? b }}", "t:1:6: unexpected character '?'"},
      {"{{ [1, 2 }}", "t:1:10: unexpected '}'"},
      {"{{ 99999999999999999999 }}", "t:1:4: a number of more than 64 bits"},
      {"{{ '\\ud800' }}", "t:1:5: this escape names no character"},
      {"{{ f(a=1, 2) }}", "t:1:11: this argument must come before"},
      {"{{ x|trim(1, 2) }}", "t:1:6: the filter 'trim' takes 1 arguments, found 2"},
      {"{{ x|tojson(width=2) }}", "t:1:19: the filter 'tojson' has no argument 'width'"},
      {"{{ x[1, 2] }}", "t:1:7: several subscripts at once are not supported"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "t:1:17: parameter 'b' without a default"},
      {"ab\n  {{ 1 +\n x.y }}", "t:3:4: 'x' is undefined"},
      {"{{ messages.a.b }}", "t:1:15: a list has no 'a'"},
      {"{% for m in 5 %}{% endfor %}", "t:1:13: a value of type int cannot be gone through"},
      {"{{ raise_exception('roles: ' ~ 1) }}", "t:1:4: roles: 1"},
      {"{{ 9223372036854775807 + 1 }}", "t:1:4: the result needs more than 64 bits"},
      {"{% set a, b = [1] %}", "t:1:8: 1 values for 2 names"},
      {"{{ strftime_now('%Q') }}", "t:1:4: strftime_now: the directive '%Q'"},
      {"{{ (messages.items)() }}", "t:1:14: a list has no 'items'"},
      {"{{ messages.append }}{{ {}.pop }}{{ {}['pop']() }}",
       "t:1:39: the method 'pop' of a dict is not allowed"},
      {"{% if false %}{{ [].append(1) }}{% endif %}{{ messages.append(1) }}",
       "t:1:56: the method 'append' of a list is not allowed"}};
  for (const auto& [text, error] : kAll) EXPECT_THAT(error_of(text), StartsWith(error)) << text;
  EXPECT_THAT(error_of("\xff"), StartsWith("t: the template is not valid UTF-8"));
}

TEST(ChatTemplate, WhatATemplateMayDoIsBounded) {
  const auto error = [](const std::string& text) {
    TemplateLimits limits;
    limits.output_bytes = 1 << 20;
    return error_of(text, {}, limits);
  };
  const std::string lots = "{% for a in range(99999) %}";
  EXPECT_THAT(error(lots + lots + "{% endfor %}{% endfor %}"), HasSubstr("1000000 steps"));
  EXPECT_THAT(error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("macros nested more than 100 deep"));
  EXPECT_THAT(error("{% macro m() %}{{ ((((((((m()))))))))|string|string|string|string|string }}"
                    "{% endmacro %}{{ m() }}"),
              HasSubstr("nested more than"));
  EXPECT_THAT(
      error("{% set n = namespace(a='x') %}" + lots + "{% set n.a = n.a ~ n.a %}{% endfor %}"),
      HasSubstr("longer than 1048576 bytes"));
  EXPECT_THAT(error(lots + "{{ 'a' * 1000 }}{% endfor %}"), HasSubstr("more than 1048576 bytes"));
  EXPECT_THAT(error("{{ 'a' * 9999999999 }}"), HasSubstr("longer than"));
  EXPECT_THAT(error("{{ 'a'.center(999999999) }}"), HasSubstr("longer than"));
  EXPECT_THAT(error("{{ range(1000000)|list }}"), HasSubstr("at most 100000"));
  EXPECT_THAT(error("{% set n = namespace(a=[]) %}" + lots + "{% set n.a = [n.a] %}{% endfor %}"),
              HasSubstr("values nested more than 100 deep"));
  // Shared parts make a value far larger than the steps that built it.
  const std::string bomb =
      "{% set n = namespace(a=[1]) %}{% for i in range(60) %}"
      "{% set n.a = [n.a, n.a] %}{% endfor %}";
  EXPECT_THAT(error(bomb + "{{ n.a|tojson }}"), HasSubstr("longer than"));
  EXPECT_THAT(error(bomb + "{{ n.a }}"), HasSubstr("longer than"));
  EXPECT_THAT(error(bomb + "{{ n.a == [n.a[0], n.a[1] + []] }}"), HasSubstr("steps"));
  // Nothing can be made to hold itself.
  EXPECT_THAT(error("{% set n = namespace() %}{% set n.a = n %}"), HasSubstr("cannot be put into"));
  EXPECT_THAT(error("{% set n = namespace() %}{% set n.a = [n] %}"), HasSubstr("cannot be put"));
  EXPECT_THAT(error("{% for a in [1] %}{{ [loop] }}{% endfor %}"), HasSubstr("cannot be put"));
}

TEST(ChatTemplate, DeepSyntaxIsRefusedWhenParsed) {
  const auto repeat = [](const std::string& s, int n) {
    std::string all;
    for (int i = 0; i < n; ++i) all += s;
    return all;
  };
  constexpr int kMany = 100'000;
  EXPECT_THAT(error_of("{{ " + repeat("(", kMany) + repeat(")", kMany) + " }}"),
              HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{{ " + repeat("[", kMany) + repeat("]", kMany) + " }}"),
              HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{{ " + repeat("not ", kMany) + "1 }}"), HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{{ " + repeat("-", kMany) + "1 }}"), HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{{ 1" + repeat(" if 1 else 1", kMany) + " }}"),
              HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{{ x" + repeat(".x", kMany) + " }}"), HasSubstr("in a row"));
  EXPECT_THAT(error_of("{{ x" + repeat("|e", kMany) + " }}"), HasSubstr("in a row"));
  EXPECT_THAT(error_of("{% for " + repeat("(", kMany) + repeat(")", kMany) + " %}"),
              HasSubstr("nested more than"));
  EXPECT_THAT(error_of(repeat("{% if x %}", kMany)), HasSubstr("nested more than"));
  EXPECT_EQ(render("{{ 1" + repeat(" + 1", 10'000) + " }}"), "10001");
  EXPECT_EQ(render("{% if 0 %}" + repeat("{% elif 0 %}", 10'000) + "{% else %}x{% endif %}"), "x");
}

TEST(ChatTemplate, InputsAreCheckedAndKeepTheirOrder) {
  TemplateInputs in;
  in.messages = Json::parse(R"([{"z": 1, "a": null, "b": {"y": null, "x": 2}}])");
  EXPECT_EQ(render("{{ messages }}", in), "[{'z': 1, 'b': {'y': None, 'x': 2}}]");
  in.more["big"] = 18446744073709551615U;
  EXPECT_EQ(error_of("{{ big }}", in),
            "t: the input 'big': the number 18446744073709551615 needs more than 64 bits");
  in.more.clear();
  in.messages = Json::parse(R"(["x"])");
  EXPECT_THAT(error_of("", in), HasSubstr("a message must be an object"));
  in.messages = Json::parse(R"({"role": "user"})");
  EXPECT_THAT(error_of("", in), HasSubstr("messages must be a list"));
  in.messages = Json::array({Json::object({{"role", "\xc3"}})});
  EXPECT_THAT(error_of("", in), HasSubstr("not valid UTF-8"));
}

TEST(ChatTemplate, DigestIsOfTheText) {
  EXPECT_EQ(ChatTemplate::parse("a", "x").digest(), ChatTemplate::parse("a", "y").digest());
  EXPECT_NE(ChatTemplate::parse("a", "x").digest(), ChatTemplate::parse("b", "x").digest());
}

}  // namespace
}  // namespace plait
