#include "plait/plan/plan.h"

#include <toml++/toml.h>

#include <set>

#include "plait/base/glob.h"
#include "plait/io/files.h"

namespace plait {

namespace {

struct Reader {
  const std::string& source;

  template <class... Args>
  [[noreturn]] void error(const toml::node& node, fmt::format_string<Args...> format,
                          Args&&... args) const {
    fail("{}:{}: {}", source, node.source().begin.line,
         fmt::format(format, std::forward<Args>(args)...));
  }
  std::string text(const toml::node& node, std::string_view what) const {
    if (!node.is_string()) error(node, "{} must be a string", what);
    return node.as_string()->get();
  }
  int64_t integer(const toml::node& node, std::string_view what, int64_t low, int64_t high) const {
    if (!node.is_integer()) error(node, "{} must be a whole number", what);
    const int64_t v = node.as_integer()->get();
    if (v < low || v > high) error(node, "{} is {}; needs {} to {}", what, v, low, high);
    return v;
  }
  const toml::array& array(const toml::node& node, std::string_view what) const {
    if (!node.is_array()) error(node, "{} must be a list", what);
    return *node.as_array();
  }
  const toml::table& table(const toml::node& node, std::string_view what) const {
    if (!node.is_table()) error(node, "{} must be a table", what);
    return *node.as_table();
  }

  std::vector<Axis> mesh(const toml::node& node) const {
    std::vector<Axis> axes;
    for (const toml::node& entry : array(node, "mesh")) {
      const std::string s = text(entry, "an axis of the mesh");
      const size_t eq = s.find('=');
      int size = 0;
      if (eq != std::string::npos && eq > 0 && s.size() - eq - 1 <= 7 && s.size() > eq + 1 &&
          s.find_first_not_of("0123456789", eq + 1) == std::string::npos)
        size = std::stoi(s.substr(eq + 1));
      if (size < 1) error(entry, "axis '{}'; expected a name and a size like \"tp=2\"", s);
      axes.push_back({s.substr(0, eq), size});
    }
    return axes;
  }

  Recompute recompute(const toml::node& node) const {
    const std::string word = text(node, "recompute");
    for (const Recompute how : {Recompute::none, Recompute::full, Recompute::selective})
      if (word == to_string(how)) return how;
    error(node, "recompute is '{}'; known are none, full, selective", word);
  }

  // "dp", ["dp", "tp"], { axes = ..., sizes = [...] }, or "" for whole.
  DimSplit split(const toml::node& node, const std::string& what) const {
    DimSplit d;
    if (node.is_table()) {
      for (const auto& [key, value] : *node.as_table()) {
        if (key.str() == "axes") {
          d.axes = split(value, what).axes;
        } else if (key.str() == "sizes") {
          for (const toml::node& n : array(value, what + " sizes"))
            d.sizes.push_back(integer(n, what + " size", 0, int64_t{1} << 40));
        } else {
          error(value, "{}: unknown key '{}'; known are axes, sizes", what, key.str());
        }
      }
    } else if (node.is_array()) {
      for (const toml::node& n : *node.as_array()) d.axes.push_back(text(n, what));
    } else if (const std::string axis = text(node, what); !axis.empty()) {
      d.axes.push_back(axis);
    }
    return d;
  }
};

void read_pipeline(const Reader& r, const toml::table& table, Plan& plan, std::string& axis) {
  for (const auto& [key, value] : table) {
    if (key.str() == "axis") {
      axis = r.text(value, "pipeline.axis");
    } else if (key.str() == "schedule") {
      plan.schedule = r.text(value, "pipeline.schedule");
    } else if (key.str() == "blocks") {
      for (const toml::node& n : r.array(value, "pipeline.blocks"))
        plan.blocks.push_back(r.integer(n, "pipeline.blocks", 0, 1 << 20));
    } else {
      r.error(value, "unknown key 'pipeline.{}'; known are axis, schedule, blocks", key.str());
    }
  }
}

}  // namespace

Plan parse_plan(std::string_view text, const std::string& source) {
  toml::table root;
  try {
    root = toml::parse(text, source);
  } catch (const toml::parse_error& e) {
    fail("{}:{}: {}", source, e.source().begin.line, e.description());
  }
  const Reader r{source};
  Plan plan;
  std::vector<Axis> axes;
  std::string pipeline_axis;
  for (const auto& [key, value] : root) {
    const std::string name(key.str());
    if (name == "mesh") {
      axes = r.mesh(value);
    } else if (name == "microbatches") {
      plan.microbatches = r.integer(value, name, 1, 1 << 16);
    } else if (name == "recompute") {
      plan.recompute = r.recompute(value);
    } else if (name == "split") {
      for (const auto& [letter, split] : r.table(value, name))
        plan.split[std::string(letter.str())] =
            r.split(split, "split." + std::string(letter.str()));
    } else if (name == "pipeline") {
      read_pipeline(r, r.table(value, name), plan, pipeline_axis);
    } else if (name == "place") {
      std::map<std::pair<uint32_t, uint32_t>, std::pair<std::string, std::vector<DimSplit>>>
          in_order;
      for (const auto& [pattern, dims] : r.table(value, name)) {
        std::vector<DimSplit> splits;
        for (const toml::node& d : r.array(dims, "place." + std::string(pattern.str())))
          splits.push_back(r.split(d, "place." + std::string(pattern.str())));
        const auto at = dims.source().begin;
        in_order[{at.line, at.column}] = {std::string(pattern.str()), std::move(splits)};
      }
      for (auto& [at, entry] : in_order) plan.place.push_back(std::move(entry));
    } else {
      r.error(value,
              "unknown key '{}'; known are mesh, microbatches, recompute, split, pipeline, place",
              name);
    }
  }
  plan.mesh = Mesh(std::move(axes), pipeline_axis);
  return plan;
}

Plan load_plan(const std::string& path) { return parse_plan(read_text(path, 1 << 24), path); }

namespace {
std::string quoted(const std::string& s) { return "\"" + s + "\""; }
std::string print_split(const DimSplit& d) {
  std::vector<std::string> names;
  for (const std::string& a : d.axes) names.push_back(quoted(a));
  std::string axes = names.size() == 1 ? names[0] : fmt::format("[{}]", fmt::join(names, ", "));
  if (names.empty()) axes = "\"\"";
  if (d.sizes.empty()) return axes;
  return fmt::format("{{ axes = {}, sizes = [{}] }}", axes, fmt::join(d.sizes, ", "));
}
}  // namespace

std::string print_plan(const Plan& plan) {
  std::vector<std::string> axes;
  for (const Axis& a : plan.mesh.axes()) axes.push_back(fmt::format("\"{}={}\"", a.name, a.size));
  std::string s =
      fmt::format("mesh = [{}]\nmicrobatches = {}\n", fmt::join(axes, ", "), plan.microbatches);
  if (plan.recompute != Recompute::none)
    s += fmt::format("recompute = {}\n", quoted(to_string(plan.recompute)));
  if (!plan.split.empty()) s += "\n[split]\n";
  for (const auto& [letter, d] : plan.split) s += fmt::format("{} = {}\n", letter, print_split(d));
  s += "\n[pipeline]\n";
  if (!plan.mesh.pipeline_axis().empty())
    s += fmt::format("axis = {}\n", quoted(plan.mesh.pipeline_axis()));
  s += fmt::format("schedule = {}\n", quoted(plan.schedule));
  if (!plan.blocks.empty()) s += fmt::format("blocks = [{}]\n", fmt::join(plan.blocks, ", "));
  if (!plan.place.empty()) s += "\n[place]\n";
  for (const auto& [pattern, dims] : plan.place) {
    std::vector<std::string> d;
    for (const DimSplit& split : dims) d.push_back(print_split(split));
    s += fmt::format("{} = [{}]\n", quoted(pattern), fmt::join(d, ", "));
  }
  return s;
}

Plan one_rank_plan(int64_t microbatches) {
  Plan plan;
  plan.microbatches = microbatches;
  return plan;
}

namespace {

// Axes of size 1 split nothing and are left out. With letters an axis may be asked for by several
// dimensions, and the first has it; a [place] entry must not name one twice.
Placement place(const Plan& plan, const std::string& what, const TensorType& type,
                const std::vector<DimSplit>& wanted, bool by_letters) {
  Placement p = replicated(wanted.size());
  std::set<std::string> used;
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (const std::string& axis : wanted[i].axes) {
      const int size = plan.mesh.size(axis);
      const bool fresh = used.insert(axis).second;
      if (!fresh && !by_letters) fail("{}: axis '{}' is named twice", what, axis);
      if (fresh && size > 1) p.dims[i].axes.push_back(axis);
    }
    if (wanted[i].sizes.empty()) continue;
    if (p.dims[i].axes == wanted[i].axes) {
      p.dims[i].sizes = wanted[i].sizes;
    } else if (wanted[i].axes.size() != 1 ||
               (plan.mesh.size(wanted[i].axes[0]) == 1 &&
                wanted[i].sizes != std::vector<int64_t>{type.dims[i].size})) {
      fail(
          "{}: shard sizes {} over {}; needs one axis, as many sizes as it has ranks, and their "
          "sum to be {}",
          what, fmt::join(wanted[i].sizes, " "), fmt::join(wanted[i].axes, " "), type.dims[i].size);
    }
  }
  return p;
}

}  // namespace

Placement place_by_letters(const Plan& plan, const TensorType& type) {
  std::vector<DimSplit> wanted;
  for (const Extent& e : type.dims) {
    const auto it = plan.split.find(e.name);
    wanted.push_back(it == plan.split.end() ? DimSplit{} : it->second);
  }
  return place(plan, "split of " + to_string(type), type, wanted, true);
}

Placement place_parameter(const Plan& plan, const std::string& name, const TensorType& type) {
  for (const auto& [pattern, dims] : plan.place) {
    if (!glob_match(pattern, name)) continue;
    if (dims.size() != type.dims.size())
      fail("place \"{}\": {} dimensions, but parameter '{}' is {}", pattern, dims.size(), name,
           to_string(type));
    return place(plan, fmt::format("place \"{}\"", pattern), type, dims, false);
  }
  return place_by_letters(plan, type);
}

}  // namespace plait
