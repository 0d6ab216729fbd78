// Models as text; README.md has the grammar.
#include "plait/base/text.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "plait/model/model.h"

namespace plait {

namespace {

// ---- print ----

bool is_word(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto part = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  };
  return !name.empty() && (letter(name[0]) || name[0] == '_') &&
         std::all_of(name.begin(), name.end(), part);
}

std::string name_text(const std::string& name) { return is_word(name) ? name : '"' + name + '"'; }

template <class Items, class Text>
std::string list_text(const Items& items, Text text) {
  std::string s;
  for (const auto& item : items) s += (s.empty() ? "" : ", ") + text(item);
  return s;
}

std::string dims_text(const TensorType& type) {
  return "[" +
         list_text(type.dims,
                   [](const Extent& e) {
                     return e.name.empty() ? fmt::format("{}", e.size) : name_text(e.name);
                   }) +
         "]";
}

std::string value_text(const Value& v) {
  return name_text(v.name) + (v.type.dtype == Dtype::i32 ? " i32" : " float") + dims_text(v.type);
}

std::string param_text(const Param& p) {
  std::string s = fmt::format("param {} {}", name_text(p.name), dims_text(p.type));
  switch (p.init.kind) {
    case Init::Kind::zeros:
      s += " zeros";
      break;
    case Init::Kind::ones:
      s += " ones";
      break;
    case Init::Kind::normal:
      s += " normal " + number_text(p.init.deviation);
      break;
    case Init::Kind::uniform:
      s += " uniform " + number_text(p.init.deviation);
      break;
  }
  if (p.frozen) s += " frozen";
  const FileSlice& f = p.file;
  const bool part = f.row != 0 || f.total_rows != p.rows();
  if (part || f.transposed || f.tensor != p.name) s += " file " + name_text(f.tensor);
  if (part) s += fmt::format(" rows {} of {}", f.row, f.total_rows);
  return s + (f.transposed ? " transposed" : "");
}

std::string block_text(const Graph& g) {
  const auto name = [&](ValueId id) { return name_text(g.values[static_cast<size_t>(id)].name); };
  const auto typed = [&](ValueId id) { return value_text(g.values[static_cast<size_t>(id)]); };
  std::string s = fmt::format("block {} ({}) ({}) {{\n", name_text(g.name),
                              list_text(g.inputs, typed), list_text(g.params, typed));
  for (const Node& node : g.nodes) {
    s += fmt::format("  {} = {}({})", list_text(node.out, name), name_text(node.op),
                     list_text(node.in, name));
    for (const auto& [key, value] : node.attrs)
      s += fmt::format(" {}={}", name_text(key), to_string(value));
    s += "\n";
  }
  return s + "  return " + list_text(g.outputs, name) + "\n}\n";
}

// ---- parse ----

class Parser {
 public:
  Parser(std::string_view text, const std::string& source) : in_(text, source) {}

  Model run() {
    in_.expect("model");
    m_.name = in_.word();
    in_.end_line();
    while (!in_.at_end()) {
      statement();
      in_.end_line();
    }
    return std::move(m_);
  }

 private:
  using Index = std::map<std::string, size_t>;

  void statement() {
    const std::string word = in_.word();
    if (in_.peek() == "=" || in_.peek() == ",") return use(word);
    if (word == "dtype") return dtype();
    if (word == "extent") return extent();
    if (word == "input") return input();
    if (word == "param") return param();
    if (word == "block") return block();
    if (word == "loss") return result(m_.loss, "loss");
    if (word == "logits") return result(m_.logits, "logits");
    if (word == "result") {
      m_.results.push_back({in_.word(), static_cast<ModelValueId>(refer(values_, "value"))});
      return;
    }
    in_.error(
        "found '{}', expected dtype, extent, input, param, block, loss, logits, result or a use",
        word);
  }

  // Takes a new name of its kind.
  std::string declare(Index& index, std::string_view kind) {
    std::string name = in_.word();
    add(index, kind, name);
    return name;
  }

  void add(Index& index, std::string_view kind, const std::string& name) {
    if (!index.emplace(name, index.size()).second)
      in_.error("{} '{}' is declared twice", kind, name);
  }

  // Takes a name that must be known.
  size_t refer(const Index& index, std::string_view kind) {
    const std::string name = in_.word();
    const auto it = index.find(name);
    if (it == index.end()) in_.error("there is no {} '{}' above", kind, name);
    return it->second;
  }

  // "(" items separated by commas ")"
  template <class Item>
  void list(std::string_view open, std::string_view close, Item item) {
    in_.expect(open);
    if (in_.accept(close)) return;
    do item();
    while (in_.accept(","));
    in_.expect(close);
  }

  std::vector<Extent> dims() {
    std::vector<Extent> result;
    list("[", "]", [&] {
      if (const char c = in_.peek().empty() ? ' ' : in_.peek()[0]; c >= '0' && c <= '9')
        result.push_back({"", in_.integer(1, kMaxExtent), 1});
      else
        result.push_back(m_.extents[refer(extents_, "extent")]);
      if (result.size() > kMaxDims) in_.error("more than {} dimensions", kMaxDims);
    });
    return result;
  }

  TensorType type() {
    const std::string word = in_.word();
    if (word != "float" && word != "i32") in_.error("found '{}', expected float or i32", word);
    TensorType t{Dtype::i32, dims()};
    if (word == "float") t.dtype = float_dtype(m_, t.dims.size());
    return t;
  }

  void dtype() {
    if (!m_.values.empty() || !m_.params.empty() || !m_.blocks.empty())
      in_.error("dtype stands before inputs, params and blocks");
    const std::string word = in_.word();
    if (word != "f32" && word != "f64" && word != "bf16")
      in_.error("found '{}', expected f32, f64 or bf16", word);
    m_.dtype = parse_dtype(word);
  }

  void extent() {
    Extent e{declare(extents_, "extent"), 0, 1};
    in_.expect("=");
    e.size = in_.integer(1, kMaxExtent);
    if (!in_.at_line_end() && in_.accept("by")) e.unit = in_.integer(1, kMaxExtent);
    if (e.size % e.unit != 0) in_.error("{} is no multiple of {}", e.size, e.unit);
    m_.extents.push_back(e);
  }

  void input() {
    std::string name = declare(values_, "value");
    m_.inputs.push_back(static_cast<ModelValueId>(m_.values.size()));
    m_.values.push_back({std::move(name), type()});
  }

  void param() {
    Param p;
    p.name = declare(params_, "parameter");
    p.type = {param_dtype(m_), dims()};
    const std::string init = in_.word();
    if (init == "zeros") {
      p.init = {Init::Kind::zeros, 0};
    } else if (init == "ones") {
      p.init = {Init::Kind::ones, 0};
    } else if (init == "normal") {
      p.init = {Init::Kind::normal, in_.number()};
    } else if (init == "uniform") {
      p.init = {Init::Kind::uniform, in_.number()};
    } else {
      in_.error("found '{}', expected zeros, ones, normal or uniform", init);
    }
    p.frozen = !in_.at_line_end() && in_.accept("frozen");
    p.file = {p.name, false, 0, p.rows()};
    if (!in_.at_line_end() && in_.accept("file")) p.file.tensor = in_.word();
    if (!in_.at_line_end() && in_.accept("rows")) {
      p.file.row = in_.integer(0, kMaxExtent);
      in_.expect("of");
      p.file.total_rows = in_.integer(1, kMaxExtent);
    }
    if (!in_.at_line_end() && in_.accept("transposed")) p.file.transposed = true;
    m_.params.push_back(std::move(p));
  }

  void block() {
    Graph g;
    g.name = declare(blocks_, "block");
    Index values;
    const auto argument = [&](std::vector<ValueId>& into) {
      std::string name = declare(values, "value");
      into.push_back(g.add_value(std::move(name), type()));
    };
    list("(", ")", [&] { argument(g.inputs); });
    list("(", ")", [&] { argument(g.params); });
    in_.expect("{");
    in_.end_line();
    for (;;) {
      const std::string word = in_.word();
      if (word == "return" && in_.peek() != "=" && in_.peek() != ",") break;
      node(g, values, word);
      in_.end_line();
    }
    do g.outputs.push_back(static_cast<ValueId>(refer(values, "value")));
    while (in_.accept(","));
    in_.end_line();
    in_.expect("}");
    m_.blocks.push_back(std::move(g));
  }

  void node(Graph& g, Index& values, const std::string& first) {
    if (++nodes_ > kMaxNodes) in_.error("more than {} nodes", kMaxNodes);
    std::vector<std::string> names = {first};
    while (in_.accept(",")) names.push_back(in_.word());
    in_.expect("=");
    const std::string op = in_.word();
    std::vector<ValueId> operands;
    list("(", ")", [&] { operands.push_back(static_cast<ValueId>(refer(values, "value"))); });
    Lexer here = in_;  // stays on this line, for errors
    Attrs attrs;
    while (!in_.at_line_end()) {
      const std::string key = in_.word();
      in_.expect("=");
      const Attr value = parse_attr(in_);
      if (!value.is_finite()) in_.error("attribute {} is {}", key, to_string(value));
      if (!attrs.emplace(key, value).second) in_.error("attribute {} stands twice", key);
    }
    std::swap(here, in_);
    try {
      g.emit(op, operands, attrs, Phase::F, names);
    } catch (const Error& e) {
      in_.error("{}", e.what());
    }
    for (const std::string& name : names) add(values, "value", name);
    std::swap(here, in_);
  }

  void use(const std::string& first) {
    if (m_.uses.size() >= kMaxNodes) in_.error("more than {} uses", kMaxNodes);
    std::vector<std::string> names = {first};
    while (in_.accept(",")) names.push_back(in_.word());
    in_.expect("=");
    BlockUse u;
    u.block = refer(blocks_, "block");
    const Graph& g = m_.blocks[u.block];
    if (names.size() != g.outputs.size())
      in_.error("block '{}' has {} results, {} are named", g.name, g.outputs.size(), names.size());
    list("(", ")", [&] { u.inputs.push_back(static_cast<ModelValueId>(refer(values_, "value"))); });
    list("(", ")", [&] { u.params.push_back(refer(params_, "parameter")); });
    in_.expect("as");
    u.name = declare(uses_, "use");
    for (size_t i = 0; i < names.size(); ++i) {
      add(values_, "value", names[i]);
      u.outputs.push_back(static_cast<ModelValueId>(m_.values.size()));
      m_.values.push_back({names[i], g.type(g.outputs[i])});
    }
    m_.uses.push_back(std::move(u));
  }

  void result(ModelValueId& id, std::string_view what) {
    if (id != kNone) in_.error("{} stands twice", what);
    id = static_cast<ModelValueId>(refer(values_, "value"));
  }

  Lexer in_;
  Model m_;
  Index extents_, values_, params_, blocks_, uses_;
  size_t nodes_ = 0;
};

}  // namespace

std::string print_model(const Model& m) {
  const auto value = [&](ModelValueId id) -> const Value& {
    return m.values[static_cast<size_t>(id)];
  };
  const auto name = [&](ModelValueId id) { return name_text(value(id).name); };
  const auto param = [&](size_t i) { return name_text(m.params[i].name); };
  std::string s = fmt::format("model {}\ndtype {}\n", name_text(m.name), info(m.dtype).name);
  for (const Extent& e : m.extents) {
    s += fmt::format("extent {} = {}", name_text(e.name), e.size);
    s += e.unit == 1 ? "\n" : fmt::format(" by {}\n", e.unit);
  }
  for (const ModelValueId id : m.inputs) s += "input " + value_text(value(id)) + "\n";
  for (const Param& p : m.params) s += param_text(p) + "\n";
  for (const Graph& g : m.blocks) s += block_text(g);
  for (const BlockUse& u : m.uses)
    s += fmt::format("{} = {} ({}) ({}) as {}\n", list_text(u.outputs, name),
                     name_text(m.blocks[u.block].name), list_text(u.inputs, name),
                     list_text(u.params, param), name_text(u.name));
  if (m.loss != kNone) s += "loss " + name(m.loss) + "\n";
  if (m.logits != kNone) s += "logits " + name(m.logits) + "\n";
  for (const ModelResult& r : m.results)
    s += fmt::format("result {} {}\n", name_text(r.name), name(r.value));
  return s;
}

Model parse_model(std::string_view text, const std::string& source) {
  Model model = Parser(text, source).run();
  try {
    check_model(model);
  } catch (const Error& e) {
    fail("{}: {}", source, e.what());
  }
  return model;
}

}  // namespace plait
