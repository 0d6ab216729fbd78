#include "plait/tokens/jinja/parser.h"

#include <set>

namespace plait::jinja {

namespace {

class Parser {
 public:
  Parser(std::string_view text, const std::string& source)
      : in_(lex(text, source), source), expressions_(in_) {}

  Body run() {
    Body all = body({});
    if (!in_.is(Token::Kind::end))
      in_.error(in_.peek(1).at, "'{}' closes nothing here", in_.peek(1).value);
    return all;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  // Statements up to a tag of `ends`, at whose name the stream then stands; the end of the template
  // ends the outermost one.
  Body body(Ends ends) {
    Body all;
    while (true) {
      const Token& t = in_.peek();
      if (t.kind == Token::Kind::end) {
        if (ends.size() > 0)
          in_.error(open_.back().second, "'{}' is not closed", open_.back().first);
        return all;
      }
      if (t.kind == Token::Kind::data) {
        Statement s = make(Statement::Kind::data);
        s.text = in_.take().value;
        all.push_back(std::move(s));
      } else if (t.kind == Token::Kind::variable_begin) {
        in_.take();
        Statement s = make(Statement::Kind::output);
        s.value = expressions_.tuple(true);
        in_.expect(Token::Kind::variable_end);
        all.push_back(std::move(s));
      } else {
        const Token& word = in_.peek(1);
        if (std::find(ends.begin(), ends.end(), word.value) != ends.end() &&
            word.kind == Token::Kind::name) {
          in_.take();
          return all;
        }
        if (word.kind == Token::Kind::name && word.value.starts_with("end") && ends.size() == 0)
          return all;  // closes nothing
        in_.take();
        all.push_back(statement());
        in_.expect(Token::Kind::block_end);
      }
    }
  }

  Statement make(Statement::Kind kind) const {
    Statement s;
    s.kind = kind;
    s.at = in_.peek().at;
    return s;
  }

  // The body of a block tag, with the end of that tag; stands behind the name of the last tag.
  std::string block(Body& into, Ends ends) {
    in_.accept_op(":");
    in_.expect(Token::Kind::block_end);
    into = body(ends);
    return in_.take().value;
  }

  Statement statement() {
    const Token word = in_.peek();
    if (word.kind != Token::Kind::name)
      in_.error(word.at, "expected the name of a tag, found {}", describe(word));
    if (open_.size() >= static_cast<size_t>(kMaxNesting))
      in_.error(word.at, "tags nested more than {} deep", kMaxNesting);
    open_.emplace_back(word.value, word.at);
    Statement s = statement(word);
    open_.pop_back();
    return s;
  }

  Statement statement(const Token& word) {
    in_.take();
    if (word.value == "if") return condition();
    if (word.value == "for") return loop();
    if (word.value == "set") return assign();
    if (word.value == "macro") return macro();
    if (word.value == "call") return call();
    if (word.value == "filter") return filter();
    if (word.value == "with") return with();
    if (word.value == "generation") {
      Statement s = make(Statement::Kind::generation);
      function_body(s.body, {"endgeneration"});
      return s;
    }
    if (word.value == "break" || word.value == "continue") {
      if (loops_ == 0) in_.error(word.at, "'{}' outside of a loop", word.value);
      return make(word.value == "break" ? Statement::Kind::leave : Statement::Kind::next);
    }
    static const std::set<std::string_view> kOfJinja = {
        "block", "extends", "include", "import", "from", "autoescape", "print", "do", "trans"};
    if (kOfJinja.count(word.value) > 0)
      in_.error(word.at, "the tag '{}' is not supported", word.value);
    in_.error(word.at, "unknown tag '{}'{}", word.value,
              word.value.starts_with("end") || word.value.starts_with("el")
                  ? ", or it closes what is not open"
                  : "");
  }

  // A body that a loop outside cannot be left from.
  void function_body(Body& into, Ends ends) {
    const int loops = loops_;
    loops_ = 0;
    block(into, ends);
    loops_ = loops;
  }

  Statement condition() {
    Statement s = make(Statement::Kind::condition);
    std::string word = "elif";
    while (word == "elif") {
      Statement::Branch branch;
      branch.condition = expressions_.tuple(false);
      word = block(branch.body, {"elif", "else", "endif"});
      s.branches.push_back(std::move(branch));
    }
    if (word == "else") {
      Statement::Branch branch;
      block(branch.body, {"endif"});
      s.branches.push_back(std::move(branch));
    }
    return s;
  }

  Statement loop() {
    Statement s = make(Statement::Kind::loop);
    s.target = target(false);
    in_.expect_name("in");
    s.value = expressions_.tuple(false);
    if (in_.accept_name("if")) s.filter = expressions_.expression();
    if (in_.is_name("recursive"))
      in_.error(in_.peek().at, "recursive loops are not supported; use a macro that calls itself");
    ++loops_;
    const std::string word = block(s.body, {"else", "endfor"});
    --loops_;
    if (word == "else") block(s.otherwise, {"endfor"});
    return s;
  }

  // name, name.attribute (where `spaces`), (a, b), or a, b
  Target target(bool spaces) {
    Target first = one_target(spaces);
    if (!in_.is_op(",")) return first;
    Target all;
    all.at = first.at;
    all.parts.push_back(std::move(first));
    while (in_.accept_op(",") && (in_.is(Token::Kind::name) ? !in_.is_name("in") : in_.is_op("(")))
      all.parts.push_back(one_target(spaces));
    return all;
  }

  Target one_target(bool spaces) {
    Target t;
    t.at = in_.peek().at;
    if (in_.accept_op("(")) {
      if (++targets_ > 10) in_.error(t.at, "targets nested more than 10 deep");
      t = target(spaces);
      --targets_;
      in_.expect_op(")");
      return t;
    }
    t.name = assignable();
    if (spaces && in_.accept_op(".")) {
      const Place at = in_.peek().at;
      t.attribute = in_.name();
      if (t.attribute.starts_with("_"))
        in_.error(at, "attributes of a namespace do not begin with '_'");
    }
    return t;
  }

  std::string assignable() {
    static const std::set<std::string_view> kConstants = {"true", "false", "none",
                                                          "True", "False", "None"};
    const Place at = in_.peek().at;
    std::string name = in_.name();
    if (kConstants.count(name) > 0) in_.error(at, "'{}' cannot be assigned to", name);
    return name;
  }

  Statement assign() {
    Statement s = make(Statement::Kind::assign);
    s.target = target(true);
    if (in_.accept_op("=")) {
      s.value = expressions_.tuple(true);
      return s;
    }
    s.kind = Statement::Kind::capture;
    s.value = expressions_.filters(nullptr);
    function_body(s.body, {"endset"});
    return s;
  }

  std::vector<Parameter> signature() {
    std::vector<Parameter> all;
    in_.expect_op("(");
    while (!in_.is_op(")")) {
      if (!all.empty()) in_.expect_op(",");
      Parameter p;
      const Place at = in_.peek().at;
      p.name = assignable();
      for (const Parameter& other : all)
        if (other.name == p.name) in_.error(at, "two parameters are called '{}'", p.name);
      if (in_.accept_op("="))
        p.fallback = expressions_.expression();
      else if (!all.empty() && all.back().fallback)
        in_.error(at, "parameter '{}' without a default behind one with a default", p.name);
      all.push_back(std::move(p));
    }
    in_.expect_op(")");
    return all;
  }

  void macro_body(Macro& m, Ends ends) {
    const size_t begin = in_.position();
    function_body(m.body, ends);
    m.uses_varargs = in_.mentions(begin, "varargs");
    m.uses_kwargs = in_.mentions(begin, "kwargs");
    m.uses_caller = in_.mentions(begin, "caller");
  }

  Statement macro() {
    Statement s = make(Statement::Kind::macro);
    auto m = std::make_shared<Macro>();
    m->name = assignable();
    m->parameters = signature();
    macro_body(*m, {"endmacro"});
    s.macro = std::move(m);
    return s;
  }

  Statement call() {
    Statement s = make(Statement::Kind::call);
    auto m = std::make_shared<Macro>();
    m->name = "caller";
    if (in_.is_op("(")) m->parameters = signature();
    s.value = expressions_.expression();
    if (s.value->kind != Expression::Kind::call)
      in_.error(s.value->at, "expected a call, such as name(...)");
    macro_body(*m, {"endcall"});
    s.macro = std::move(m);
    return s;
  }

  Statement filter() {
    Statement s = make(Statement::Kind::filter);
    s.value = expressions_.filters(expressions_.filter(nullptr));
    function_body(s.body, {"endfilter"});
    return s;
  }

  Statement with() {
    Statement s = make(Statement::Kind::scope);
    while (!in_.is(Token::Kind::block_end)) {
      if (!s.assignments.empty()) in_.expect_op(",");
      Target t = one_target(false);
      in_.expect_op("=");
      s.assignments.emplace_back(std::move(t), expressions_.expression());
    }
    block(s.body, {"endwith"});
    return s;
  }

  TokenStream in_;
  ExpressionParser expressions_;
  std::vector<std::pair<std::string, Place>> open_;  // tags, from the outermost
  int loops_ = 0;
  int targets_ = 0;
};

}  // namespace

Body parse(std::string_view text, const std::string& source) { return Parser(text, source).run(); }

}  // namespace plait::jinja
