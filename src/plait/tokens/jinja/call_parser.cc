#include <algorithm>

#include "plait/tokens/jinja/library.h"
#include "plait/tokens/jinja/parser.h"

namespace plait::jinja {

ExpressionPtr ExpressionParser::filters(ExpressionPtr value) {
  for (int n = 0; in_.accept_op("|"); ++n) {
    if (n > kMaxNesting / 4) in_.error(in_.peek().at, "too many filters in a row");
    value = filter(std::move(value));
  }
  return value;
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  const Place at = callee->at;
  ExpressionPtr e = make_expression(Expression::Kind::call, at, std::move(callee));
  e->arguments = arguments();
  return e;
}

std::vector<Argument> ExpressionParser::arguments() {
  using Kind = Argument::Kind;
  std::vector<Argument> all;
  in_.expect_op("(");
  while (!in_.is_op(")")) {
    if (!all.empty()) in_.expect_op(",");
    if (in_.is_op(")")) break;
    Argument a;
    const Place at = in_.peek().at;
    if (in_.accept_op("*")) {
      a.kind = Kind::spread;
    } else if (in_.accept_op("**")) {
      a.kind = Kind::spread_named;
    } else if (in_.is(Token::Kind::name) && in_.is_op("=", 1)) {
      a.kind = Kind::named;
      a.name = in_.name();
      in_.take();
      for (const Argument& other : all)
        if (other.kind == Kind::named && other.name == a.name)
          in_.error(at, "the argument '{}' is given twice", a.name);
    }
    const Kind last = all.empty() ? Kind::plain : all.back().kind;
    if (a.kind == Kind::plain ? last != Kind::plain : a.kind == Kind::spread && last > Kind::named)
      in_.error(at, "this argument must come before the ones before it");
    a.value = expression();
    all.push_back(std::move(a));
  }
  in_.expect_op(")");
  return all;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr value) {
  ExpressionPtr e = make_expression(Expression::Kind::filter, in_.peek().at, std::move(value));
  e->name = in_.name();
  if (in_.is_op("(")) e->arguments = arguments();
  check_filter(*e);
  return e;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const Place at = in_.take().at;
  const bool negated = in_.accept_name("not");
  ExpressionPtr e = make_expression(Expression::Kind::test, in_.peek().at, std::move(value));
  e->name = in_.name();
  const Token& next = in_.peek();
  const bool word = next.kind == Token::Kind::name && next.value != "else" && next.value != "or" &&
                    next.value != "and";
  if (in_.is_op("(")) {
    e->arguments = arguments();
  } else if (word || next.kind == Token::Kind::text || next.kind == Token::Kind::integer ||
             next.kind == Token::Kind::real || in_.is_op("[") || in_.is_op("{")) {
    if (in_.is_name("is")) in_.error(next.at, "tests cannot be chained with 'is'");
    // As in Jinja, the word behind a test is its argument, be it `if`.
    Argument a;
    a.value = postfix(primary());
    e->arguments.push_back(std::move(a));
  }
  check_test(*e);
  return negated ? make_expression(Expression::Kind::logical_not, at, std::move(e)) : std::move(e);
}

void ExpressionParser::check_filter(const Expression& e) const {
  const Filter* f = find_filter(e.name);
  if (f == nullptr) in_.error(e.at, "the filter '{}' is not supported", e.name);
  if (f->run_free != nullptr) return;
  size_t plain = 0;
  for (const Argument& a : e.arguments) {
    if (a.kind == Argument::Kind::spread || a.kind == Argument::Kind::spread_named) return;
    plain += a.kind == Argument::Kind::plain;
    if (a.kind == Argument::Kind::named &&
        std::find(f->parameters.begin(), f->parameters.end(), a.name) == f->parameters.end())
      in_.error(a.value->at, "the filter '{}' has no argument '{}'", e.name, a.name);
  }
  if (plain > f->parameters.size())
    in_.error(e.at, "the filter '{}' takes {} arguments, found {}", e.name, f->parameters.size(),
              plain);
}

void ExpressionParser::check_test(const Expression& e) const {
  const Test* t = find_test(e.name);
  if (t == nullptr) in_.error(e.at, "the test '{}' is not supported", e.name);
  for (const Argument& a : e.arguments)
    if (a.kind != Argument::Kind::plain) in_.error(a.value->at, "tests take plain arguments only");
  if (e.arguments.size() != t->arguments)
    in_.error(e.at, "the test '{}' takes {} arguments, found {}", e.name, t->arguments,
              e.arguments.size());
}

}  // namespace plait::jinja
