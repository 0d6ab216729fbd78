#include "plait/cli/run_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "plait/base/text.h"
#include "plait/io/files.h"

namespace plait {

namespace {

constexpr int64_t kMaxRunFileBytes = 1 << 20;

struct Reader {
  const CLI::App& command;
  const std::string& path;
  std::vector<std::string> given;  // flags of the command line
  std::vector<std::string> result;
  std::string model;

  std::string at(const toml::node& node) const {
    return fmt::format("{}:{}", path, node.source().begin.line);
  }

  std::vector<std::string> known() const {
    std::vector<std::string> names;
    for (const CLI::Option* o : command.get_options())
      for (const std::string& name : o->get_lnames())
        if (name != "help") names.push_back(name);
    return names;
  }

  std::string scalar(const toml::node& node, const std::string& key) const {
    if (const auto* s = node.as_string()) return s->get();
    if (const auto* i = node.as_integer()) return std::to_string(i->get());
    if (const auto* b = node.as_boolean()) return b->get() ? "true" : "false";
    if (const auto* f = node.as_floating_point()) return number_text(f->get());
    fail("{}: '{}' is neither text nor a number nor true or false", at(node), key);
  }

  void add(const toml::node& node, const std::string& key) {
    std::string flag = key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    std::replace(flag.begin(), flag.end(), '.', '-');
    if (flag == "model") {
      model = scalar(node, key);
      return;
    }
    if (command.get_option_no_throw("--" + flag) == nullptr || flag == "help")
      fail("{}: unknown key '{}'; did you mean '{}'?", at(node), key, closest(flag));
    if (std::find(given.begin(), given.end(), flag) != given.end()) return;
    const auto* array = node.as_array();
    if (array == nullptr) {
      result.push_back("--" + flag + "=" + scalar(node, key));
      return;
    }
    if (array->size() != 1 && command.get_option("--" + flag)->get_expected_max() <= 1)
      fail("{}: '{}' is a list of {}; needs one value", at(node), key, array->size());
    for (const toml::node& element : *array)
      result.push_back("--" + flag + "=" + scalar(element, key));
  }

  void read(const toml::table& table, const std::string& prefix) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      if (const auto* inner = node.as_table())
        read(*inner, key + ".");
      else
        add(node, key);
    }
  }

  // The known key that is fewest edits away.
  std::string closest(const std::string& flag) const {
    std::string best;
    size_t least = SIZE_MAX;
    for (const std::string& name : known()) {
      std::vector<size_t> row(name.size() + 1);
      for (size_t j = 0; j < row.size(); ++j) row[j] = j;
      for (size_t i = 1; i <= flag.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j < row.size(); ++j) {
          const size_t change = diagonal + (flag[i - 1] == name[j - 1] ? 0 : 1);
          diagonal = row[j];
          row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
        }
      }
      if (row.back() < least) {
        least = row.back();
        best = name;
      }
    }
    std::replace(best.begin(), best.end(), '-', '_');
    return best;
  }
};

std::vector<std::string> flags_of(const std::vector<std::string>& args) {
  std::vector<std::string> flags;
  for (const std::string& a : args)
    if (a.starts_with("--")) flags.push_back(a.substr(2, a.find('=') - 2));
  return flags;
}

}  // namespace

void let_the_last_win(CLI::App& app) {
  for (CLI::Option* o : app.get_options())
    if (!o->get_positional() && o->get_expected_max() == 1)
      o->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (CLI::App* command : app.get_subcommands({})) let_the_last_win(*command);
}

std::vector<std::string> expand_run_file(const CLI::App& command, std::vector<std::string> args) {
  if (args.empty() || !args[0].ends_with(".toml")) return args;
  const std::string path = args[0];
  args.erase(args.begin());
  Reader reader{command, path, flags_of(args), {}, {}};
  try {
    reader.read(toml::parse(read_text(path, kMaxRunFileBytes), path), "");
  } catch (const toml::parse_error& e) {
    fail("{}:{}: {}", path, e.source().begin.line, e.description());
  }
  if (reader.model.empty()) fail("{}: no key 'model'; a run file names its model", path);
  std::vector<std::string> result = {reader.model};
  result.insert(result.end(), reader.result.begin(), reader.result.end());
  result.insert(result.end(), args.begin(), args.end());
  return result;
}

}  // namespace plait
