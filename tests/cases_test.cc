// Text tests that anyone can add: every tests/cases/*.case is run. A file says
//
//   command lower | communication | verify       what to do
//   model llama-tiny slots 2 slot_tokens 12      a named model, or a section --- model (text IR)
//   ranks 8                                      the size of the world (left out: the plan's)
//   --- plan / --- programs                      the input
//   --- ok | --- refused | --- prints            what must come out: `refused` lists texts that
//                                                the message must hold, one a line; `prints` is
//                                                the exact output
//   --- suggests                                 the changes of the suggested plan, exactly
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "plait/model/families.h"
#include "plait/program/suggest.h"
#include "plait/program/verify.h"

namespace plait {
namespace {

struct CaseFile {
  std::map<std::string, std::string> sections;  // "" is the head
  std::string command, model;
  BatchShape batch{2, 12};
  int ranks = 0;
};

CaseFile read_case(const std::string& path) {
  CaseFile c;
  std::ifstream in(path);
  std::string line, section;
  while (std::getline(in, line)) {
    if (line.starts_with("--- ")) {
      section = line.substr(4);
      c.sections[section];
    } else {
      c.sections[section] += line + "\n";
    }
  }
  std::istringstream head(c.sections[""]);
  while (std::getline(head, line)) {
    std::istringstream words(line);
    std::string key, skip;
    words >> key;
    if (key == "command") words >> c.command;
    if (key == "ranks") words >> c.ranks;
    if (key == "model") words >> c.model >> skip >> c.batch.slots >> skip >> c.batch.slot_tokens;
  }
  return c;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

std::string communication(const Lowered& l) {
  std::string text;
  for (const PartGraph& part : l.parts) {
    text += part.name + "\n";
    for (const PartNode& n : part.nodes) {
      if (!n.comm) continue;
      const auto in = static_cast<size_t>(n.in[0]), out = static_cast<size_t>(n.out[0]);
      text += fmt::format("  {} {} {} over {}: {} -> {}\n", to_string(n.phase), n.op,
                          part.values[in].name, n.comm->axis, to_string(part.placements[in]),
                          to_string(part.placements[out]));
    }
  }
  return text;
}

Model model_of(const CaseFile& c) {
  const auto it = c.sections.find("model");
  return it == c.sections.end() ? load_model(c.model, c.batch, Head::loss)
                                : parse_model(it->second, "case");
}

std::string carry_out(const CaseFile& c) {
  if (c.command == "verify") {
    const Programs programs = parse_programs(c.sections.at("programs"), "case");
    verify(programs);
    EXPECT_EQ(print_programs(parse_programs(print_programs(programs), "printed")),
              print_programs(programs));
    return "";
  }
  const Plan plan = parse_plan(c.sections.at("plan"), "case");
  if (c.ranks != 0) check_ranks(plan, c.ranks);
  const Lowered l = lower(model_of(c), plan);
  verify(l.programs);
  return c.command == "communication" ? communication(l) : "";
}

class Cases : public testing::TestWithParam<std::string> {};

TEST_P(Cases, Holds) {
  const CaseFile c = read_case(GetParam());
  const auto refused = c.sections.find("refused");
  const auto prints = c.sections.find("prints");
  ASSERT_EQ(c.sections.count("ok") + c.sections.count("refused") + c.sections.count("prints"), 1u);
  std::string message;
  try {
    const std::string output = carry_out(c);
    ASSERT_TRUE(refused == c.sections.end()) << "was not refused";
    if (prints != c.sections.end()) {
      EXPECT_EQ(output, prints->second);
    }
    return;
  } catch (const Error& e) {
    message = e.what();
  }
  ASSERT_TRUE(refused != c.sections.end()) << message;
  ASSERT_FALSE(lines_of(refused->second).empty());
  for (const std::string& text : lines_of(refused->second))
    EXPECT_NE(message.find(text), std::string::npos)
        << "expected: " << text << "\nfound: " << message;
  if (!c.sections.contains("suggests")) return;
  const Model model = model_of(c);
  const auto s = suggest_plan(model, parse_plan(c.sections.at("plan"), "case"), c.ranks, {});
  ASSERT_TRUE(s.has_value()) << "nothing is suggested";
  EXPECT_EQ(s->changes, lines_of(c.sections.at("suggests")));
  EXPECT_NO_THROW(verify(lower(model, s->plan).programs));
}

std::vector<std::string> all_cases() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(PLAIT_SOURCE_DIR "/tests/cases"))
    if (entry.path().extension() == ".case") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Files, Cases, testing::ValuesIn(all_cases()), [](const auto& i) {
  return std::filesystem::path(i.param).stem().string();
});

}  // namespace
}  // namespace plait
