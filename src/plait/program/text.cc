// Programs as text (declared in program.h).
#include <charconv>

#include "plait/base/digest.h"
#include "plait/program/program.h"

namespace plait {

namespace {

constexpr const char* kKinds[] = {"alloc", "free", "fill",       "input",      "op",
                                  "send",  "recv", "all_reduce", "all_gather", "reduce_scatter",
                                  "slice", "join", "copy"};

std::string b(BufferId id) { return fmt::format("b{}", id); }
std::string list(const std::vector<BufferId>& ids) {
  std::string s;
  for (BufferId id : ids) s += fmt::format("{}b{}", s.empty() ? "" : " ", id);
  return s;
}

}  // namespace

const char* to_string(ActionKind kind) { return kKinds[static_cast<size_t>(kind)]; }

std::string print_action(const Program&, const Action& a) {
  std::string s = to_string(a.kind);
  auto add = [&s]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    s += " " + fmt::format(format, std::forward<Args>(args)...);
  };
  switch (a.kind) {
    case ActionKind::alloc:
      add("{}", b(a.out[0]));
      break;
    case ActionKind::free:
      add("{}", b(a.in[0]));
      break;
    case ActionKind::fill:
      add("{} {}", b(a.out[0]), number_text(a.value));
      break;
    case ActionKind::input:
      add("{} \"{}\" {}", b(a.out[0]), a.name, a.microbatch);
      break;
    case ActionKind::op:
      add("{} {} = {}", a.name, list(a.out), list(a.in));
      for (const auto& [key, value] : a.attrs) add("{}={}", key, to_string(value));
      if (a.workspace != kNone) add("workspace {}", b(a.workspace));
      break;
    case ActionKind::send:
      add("{} to {}", b(a.in[0]), a.peer);
      break;
    case ActionKind::recv:
      add("{} from {}", b(a.out[0]), a.peer);
      break;
    case ActionKind::copy:
      add("{} = {}", b(a.out[0]), b(a.in[0]));
      break;
    case ActionKind::join:
      add("{} = {} over {}", b(a.out[0]), b(a.in[0]), a.comm.axis);
      break;
    case ActionKind::slice:
      add("{} = {} dim {} over {}", b(a.out[0]), b(a.in[0]), a.comm.dim, a.comm.axis);
      break;
    case ActionKind::all_reduce:
    case ActionKind::all_gather:
    case ActionKind::reduce_scatter:
      add("{} = {}", b(a.out[0]), b(a.in[0]));
      if (a.kind != ActionKind::all_gather) add("{}", to_string(a.comm.reduce));
      if (a.kind != ActionKind::all_reduce) add("dim {}", a.comm.dim);
      add("over {} group {}", a.comm.axis, fmt::join(a.group, " "));
      break;
  }
  return s;
}

std::string print_programs(const Programs& programs) {
  std::string s =
      fmt::format("programs \"{}\" mesh \"{}\" pipeline \"{}\" slots {} threads {}\n",
                  programs.model, to_string(programs.mesh), programs.mesh.pipeline_axis(),
                  programs.channel_slots, programs.threads);
  for (const auto& [state, meaning] : programs.meaning)
    s += fmt::format("means \"{}\" \"{:016x}\"\n", state, meaning);
  for (size_t r = 0; r < programs.ranks.size(); ++r) {
    const Program& p = programs.ranks[r];
    s += fmt::format("rank {} {{\n", r);
    for (size_t i = 0; i < p.buffers.size(); ++i) {
      const Buffer& buffer = p.buffers[i];
      s +=
          fmt::format("  buffer b{} \"{}\" {} {} at {}{}\n", i, buffer.name, to_string(buffer.type),
                      to_string(buffer.placement), buffer.offset, buffer.state ? " state" : "");
    }
    int32_t unit = -1;
    for (const Action& a : p.actions) {
      if (a.unit != unit)
        s += fmt::format("  unit \"{}\"\n", p.units.at(static_cast<size_t>(a.unit)));
      unit = a.unit;
      s += "  " + print_action(p, a) + "\n";
    }
    s += "}\n";
  }
  return s;
}

uint64_t digest(const Programs& programs) { return digest(print_programs(programs)); }

namespace {

class ProgramParser {
 public:
  ProgramParser(std::string_view text, const std::string& source) : in_(text, source) {}

  Programs parse() {
    in_.expect("programs");
    programs_.model = in_.word();
    in_.expect("mesh");
    const std::string axes = in_.word();
    in_.expect("pipeline");
    programs_.mesh = mesh(axes, in_.word());
    in_.expect("slots");
    programs_.channel_slots = static_cast<int>(in_.integer(1, 1024));
    if (in_.accept("threads")) programs_.threads = static_cast<int>(in_.integer(1, 4096));
    in_.end_line();
    while (in_.accept("means")) meaning();
    programs_.ranks.resize(static_cast<size_t>(programs_.mesh.ranks()));
    for (size_t r = 0; r < programs_.ranks.size(); ++r) rank(static_cast<int>(r));
    if (!in_.at_end()) in_.error("'{}' after the last rank", in_.peek());
    return std::move(programs_);
  }

 private:
  Mesh mesh(const std::string& text, const std::string& pipeline) {
    std::vector<Axis> axes;
    if (text != "one rank" && !text.empty()) {
      Lexer words(text, "mesh");
      while (!words.at_end()) {
        Axis a;
        a.name = words.word();
        words.expect("=");
        a.size = static_cast<int>(words.integer(1, 1 << 20));
        axes.push_back(std::move(a));
      }
    }
    return Mesh(std::move(axes), pipeline);
  }

  void meaning() {
    const std::string state = in_.word(), text = in_.word();
    uint64_t value = 0;
    const auto r = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (text.size() != 16 || r.ptr != text.data() + text.size())
      in_.error("found '{}', expected 16 hexadecimal digits", text);
    if (!programs_.meaning.emplace(state, value).second)
      in_.error("the meaning of '{}' is stated twice", state);
    in_.end_line();
  }

  TensorType type() {
    TensorType t{parse_dtype(in_.word()), {}};
    in_.expect("[");
    while (!in_.accept("]")) {
      if (!t.dims.empty()) in_.expect(",");
      Extent e;
      if (std::isalpha(static_cast<unsigned char>(in_.peek().front())) != 0) {
        e.name = in_.word();
        in_.expect("=");
      }
      e.size = in_.integer(0, int64_t{1} << 40);
      if (in_.accept("/")) e.unit = in_.integer(1, int64_t{1} << 40);
      if (e.size % e.unit != 0)
        in_.error("extent {} is no multiple of its unit {}", e.size, e.unit);
      t.dims.push_back(std::move(e));
      if (t.dims.size() > 4) in_.error("more than 4 dimensions");
    }
    return t;
  }

  BufferId buffer_id() {
    const std::string w = in_.word();
    int64_t id = -1;
    const auto r = std::from_chars(w.data() + 1, w.data() + w.size(), id);
    if (w[0] != 'b' || r.ptr != w.data() + w.size() || id < 0 ||
        id >= static_cast<int64_t>(program_->buffers.size()))
      in_.error("found '{}', expected a buffer of this rank", w);
    return static_cast<BufferId>(id);
  }

  void rank(int r) {
    program_ = &programs_.ranks[static_cast<size_t>(r)];
    in_.expect("rank");
    if (in_.integer(0, 1 << 20) != r) in_.error("ranks must stand in order; expected {}", r);
    in_.expect("{");
    while (in_.accept("buffer")) buffer(r);
    while (!in_.accept("}")) {
      if (in_.accept("unit")) {
        program_->units.push_back(in_.word());
        continue;
      }
      if (program_->units.empty()) program_->units.emplace_back("");
      action();
    }
    derive_buffers(*program_, programs_.mesh, r);
    for (const Buffer& x : program_->buffers)
      program_->arena_bytes = std::max(program_->arena_bytes, checked_add(x.offset, x.bytes));
  }

  void buffer(int r) {
    const std::string id = in_.word();
    if (id != b(static_cast<BufferId>(program_->buffers.size())))
      in_.error("found '{}', expected b{}", id, program_->buffers.size());
    Buffer x;
    x.name = in_.word();
    x.type = type();
    x.placement = parse_placement(in_, x.type.dims.size());
    check_placement(fmt::format("rank {} buffer '{}'", r, x.name), x.type, x.placement,
                    programs_.mesh);
    in_.expect("at");
    x.offset = in_.integer(0, int64_t{1} << 50);
    x.state = in_.accept("state");
    in_.end_line();
    program_->buffers.push_back(std::move(x));
  }

  void action() {
    Action a;
    const std::string word = in_.word();
    size_t kind = 0;
    while (kind < std::size(kKinds) && word != kKinds[kind]) ++kind;
    if (kind == std::size(kKinds)) in_.error("unknown action '{}'", word);
    a.kind = static_cast<ActionKind>(kind);
    a.unit = static_cast<int32_t>(program_->units.size()) - 1;
    operands(a);
    in_.end_line();
    program_->actions.push_back(std::move(a));
  }

  void operands(Action& a) {
    switch (a.kind) {
      case ActionKind::alloc:
        a.out = {buffer_id()};
        return;
      case ActionKind::free:
        a.in = {buffer_id()};
        return;
      case ActionKind::fill:
        a.out = {buffer_id()};
        a.value = in_.number();
        return;
      case ActionKind::input:
        a.out = {buffer_id()};
        a.name = in_.word();
        a.microbatch = in_.integer(-1, 1 << 20);
        return;
      case ActionKind::op:
        op(a);
        return;
      case ActionKind::send:
        a.in = {buffer_id()};
        in_.expect("to");
        a.peer = static_cast<int>(in_.integer(0, programs_.mesh.ranks() - 1));
        return;
      case ActionKind::recv:
        a.out = {buffer_id()};
        in_.expect("from");
        a.peer = static_cast<int>(in_.integer(0, programs_.mesh.ranks() - 1));
        return;
      default:
        communication(a);
        return;
    }
  }

  void op(Action& a) {
    a.name = in_.word();
    find_op(a.name);
    while (!in_.accept("=")) a.out.push_back(buffer_id());
    if (a.out.empty()) in_.error("op '{}' has no result", a.name);
    while (!in_.at_line_end()) {
      if (in_.accept("workspace")) {
        a.workspace = buffer_id();
      } else if (in_.peek().size() > 1 && in_.peek()[0] == 'b' &&
                 std::isdigit(static_cast<unsigned char>(in_.peek()[1])) != 0) {
        a.in.push_back(buffer_id());
      } else {
        const std::string key = in_.word();
        in_.expect("=");
        a.attrs[key] = parse_attr(in_);
      }
    }
  }

  void communication(Action& a) {
    a.out = {buffer_id()};
    in_.expect("=");
    a.in = {buffer_id()};
    if (a.kind == ActionKind::copy) return;
    constexpr Reduce kReduces[] = {Reduce::sum, Reduce::max, Reduce::lse};
    for (const Reduce r : kReduces)
      if (in_.accept(to_string(r))) a.comm.reduce = r;
    if (in_.accept("dim")) a.comm.dim = static_cast<size_t>(in_.integer(0, 3));
    in_.expect("over");
    a.comm.axis = in_.word();
    if (!programs_.mesh.has(a.comm.axis)) in_.error("there is no axis '{}'", a.comm.axis);
    if (a.kind == ActionKind::all_gather) a.comm.kind = Comm::Kind::all_gather;
    if (a.kind == ActionKind::reduce_scatter) a.comm.kind = Comm::Kind::reduce_scatter;
    if (a.kind == ActionKind::slice) a.comm.kind = Comm::Kind::slice;
    if (!is_collective(a.kind)) return;
    in_.expect("group");
    while (!in_.at_line_end())
      a.group.push_back(static_cast<int>(in_.integer(0, programs_.mesh.ranks() - 1)));
  }

  Lexer in_;
  Programs programs_;
  Program* program_ = nullptr;
};

}  // namespace

Programs parse_programs(std::string_view text, const std::string& source) {
  return ProgramParser(text, source).parse();
}

}  // namespace plait
