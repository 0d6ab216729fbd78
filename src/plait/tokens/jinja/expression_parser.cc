#include <algorithm>

#include "plait/tokens/jinja/library.h"
#include "plait/tokens/jinja/parser.h"
#include "plait/tokens/jinja/python.h"

namespace plait::jinja {

// One level of nesting, which costs stack when parsing, running and freeing.
class Deeper {
 public:
  Deeper(ExpressionParser& p, int levels = 1) : p_(p), levels_(levels) {
    p_.depth_ += levels_;
    if (p_.depth_ > kMaxNesting) {
      p_.depth_ -= levels_;
      p_.in_.error(p_.in_.peek().at, "expressions nested more than {} deep", kMaxNesting);
    }
  }
  ~Deeper() { p_.depth_ -= levels_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  ExpressionParser& p_;
  int levels_;
};

ExpressionPtr ExpressionParser::expression() {
  Deeper deeper(*this);
  const Place at = in_.peek().at;
  ExpressionPtr e = logical(true);
  if (!in_.is_name("if")) return e;
  int levels = 0;
  while (in_.accept_name("if")) {
    if (++levels > kMaxNesting / 4) in_.error(at, "too many inline ifs in a row");
    ExpressionPtr whole = make_expression(Expression::Kind::conditional, at, std::move(e));
    whole->parts.push_back(logical(true));
    whole->parts.push_back(in_.accept_name("else") ? expression() : nullptr);
    e = std::move(whole);
  }
  return e;
}

ExpressionPtr ExpressionParser::without_condition() {
  Deeper deeper(*this);
  return logical(true);
}

bool ExpressionParser::at_tuple_end() const {
  return in_.is(Token::Kind::variable_end) || in_.is(Token::Kind::block_end) || in_.is_op(")");
}

ExpressionPtr ExpressionParser::tuple(bool with_condition) {
  const Place at = in_.peek().at;
  if (at_tuple_end()) in_.error(at, "expected an expression, found {}", describe(in_.peek()));
  ExpressionPtr first = with_condition ? expression() : without_condition();
  if (!in_.is_op(",")) return first;
  ExpressionPtr all = make_expression(Expression::Kind::tuple, at, std::move(first));
  while (in_.accept_op(",") && !at_tuple_end())
    all->parts.push_back(with_condition ? expression() : without_condition());
  return all;
}

ExpressionPtr ExpressionParser::logical(bool either) {
  const Place at = in_.peek().at;
  const std::string_view word = either ? "or" : "and";
  ExpressionPtr first = either ? logical(false) : negation();
  if (!in_.is_name(word)) return first;
  const auto kind = either ? Expression::Kind::logical_or : Expression::Kind::logical_and;
  ExpressionPtr all = make_expression(kind, at, std::move(first));
  while (in_.accept_name(word)) all->parts.push_back(either ? logical(false) : negation());
  return all;
}

ExpressionPtr ExpressionParser::negation() {
  const Place at = in_.peek().at;
  if (!in_.is_name("not")) return comparison();
  in_.take();
  Deeper deeper(*this);
  return make_expression(Expression::Kind::logical_not, at, negation());
}

ExpressionPtr ExpressionParser::comparison() {
  static constexpr std::pair<std::string_view, Operator> kAll[] = {
      {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
      {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal}};
  const Place at = in_.peek().at;
  ExpressionPtr e = sum();
  ExpressionPtr all;
  while (true) {
    const auto* known = std::find_if(std::begin(kAll), std::end(kAll),
                                     [&](const auto& k) { return in_.is_op(k.first); });
    Operator op = Operator::in;
    if (known != std::end(kAll)) {
      in_.take();
      op = known->second;
    } else if (in_.is_name("not") && in_.is_name("in", 1)) {
      in_.take();
      in_.take();
      op = Operator::not_in;
    } else if (!in_.accept_name("in")) {
      break;
    }
    if (!all) all = make_expression(Expression::Kind::compare, at, std::move(e));
    all->operators.push_back(op);
    all->parts.push_back(sum());
  }
  return all ? std::move(all) : std::move(e);
}

ExpressionPtr ExpressionParser::sum() {
  const Place at = in_.peek().at;
  ExpressionPtr first = concat();
  if (!in_.is_op("+") && !in_.is_op("-")) return first;
  ExpressionPtr all = make_expression(Expression::Kind::chain, at, std::move(first));
  while (in_.is_op("+") || in_.is_op("-")) {
    all->operators.push_back(in_.take().value == "+" ? Operator::add : Operator::subtract);
    all->parts.push_back(concat());
  }
  return all;
}

ExpressionPtr ExpressionParser::concat() {
  const Place at = in_.peek().at;
  ExpressionPtr first = product();
  if (!in_.is_op("~")) return first;
  ExpressionPtr all = make_expression(Expression::Kind::concat, at, std::move(first));
  while (in_.accept_op("~")) all->parts.push_back(product());
  return all;
}

ExpressionPtr ExpressionParser::product() {
  static constexpr std::pair<std::string_view, Operator> kAll[] = {{"*", Operator::multiply},
                                                                   {"/", Operator::divide},
                                                                   {"//", Operator::floor_divide},
                                                                   {"%", Operator::modulo}};
  const Place at = in_.peek().at;
  ExpressionPtr e = power();
  ExpressionPtr all;
  while (true) {
    const auto* known = std::find_if(std::begin(kAll), std::end(kAll),
                                     [&](const auto& k) { return in_.is_op(k.first); });
    if (known == std::end(kAll)) return all ? std::move(all) : std::move(e);
    in_.take();
    if (!all) all = make_expression(Expression::Kind::chain, at, std::move(e));
    all->operators.push_back(known->second);
    all->parts.push_back(power());
  }
}

ExpressionPtr ExpressionParser::power() {  // from the left, unlike Python's
  const Place at = in_.peek().at;
  ExpressionPtr first = unary(true);
  if (!in_.is_op("**")) return first;
  ExpressionPtr all = make_expression(Expression::Kind::chain, at, std::move(first));
  while (in_.accept_op("**")) {
    all->operators.push_back(Operator::power);
    all->parts.push_back(unary(true));
  }
  return all;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Place at = in_.peek().at;
  ExpressionPtr e;
  if (in_.is_op("-") || in_.is_op("+")) {
    const bool minus = in_.take().value == "-";
    Deeper deeper(*this);
    e = make_expression(minus ? Expression::Kind::minus : Expression::Kind::plus, at, unary(false));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filters ? filter_or_test(std::move(e)) : std::move(e);
}

ExpressionPtr ExpressionParser::primary() {
  const Token token = in_.peek();
  if (in_.is_op("(")) return parenthesized();
  if (in_.is_op("[")) return list();
  if (in_.is_op("{")) return dict();
  ExpressionPtr e = make_expression(Expression::Kind::constant, token.at);
  switch (token.kind) {
    case Token::Kind::text: {
      std::string all;
      while (in_.is(Token::Kind::text)) all += in_.take().value;
      e->value = Value::text(std::move(all));
      return e;
    }
    case Token::Kind::integer:
      e->value = Value::integer(std::stoll(in_.take().value));
      return e;
    case Token::Kind::real: {
      const auto d = read_float(in_.take().value);
      if (!d) in_.error(token.at, "a number that cannot be read");
      e->value = Value::real(*d);
      return e;
    }
    case Token::Kind::name:
      break;
    default:
      in_.error(token.at, "expected an expression, found {}", describe(token));
  }
  const std::string& name = in_.take().value;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    e->value = Value::boolean(name[0] == 't' || name[0] == 'T');
  } else if (name == "none" || name == "None") {
    e->value = Value::none();
  } else {
    static constexpr std::string_view kUnsupported[] = {"lipsum", "cycler", "joiner", "self",
                                                        "super"};
    if (in_.is_op("(") &&
        std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported))
      in_.error(token.at, "the function '{}' is not supported", name);
    e->kind = Expression::Kind::name;
    e->name = name;
  }
  return e;
}

ExpressionPtr ExpressionParser::parenthesized() {
  Deeper deeper(*this);
  const Place at = in_.take().at;
  ExpressionPtr e = in_.is_op(")") ? make_expression(Expression::Kind::tuple, at) : tuple(true);
  in_.expect_op(")");
  return e;
}

ExpressionPtr ExpressionParser::list() {
  ExpressionPtr all = make_expression(Expression::Kind::list, in_.take().at);
  while (!in_.is_op("]")) {
    if (!all->parts.empty()) in_.expect_op(",");
    if (in_.is_op("]")) break;
    all->parts.push_back(expression());
  }
  in_.expect_op("]");
  return all;
}

ExpressionPtr ExpressionParser::dict() {
  ExpressionPtr all = make_expression(Expression::Kind::dict, in_.take().at);
  while (!in_.is_op("}")) {
    if (!all->parts.empty()) in_.expect_op(",");
    if (in_.is_op("}")) break;
    all->parts.push_back(expression());
    in_.expect_op(":");
    all->parts.push_back(expression());
  }
  in_.expect_op("}");
  return all;
}

// Postfixes nest as deep as there are of them.
ExpressionPtr ExpressionParser::postfix(ExpressionPtr e) {
  for (int n = 0;; ++n) {
    if (n > kMaxNesting / 4) in_.error(in_.peek().at, "too many attributes and calls in a row");
    if (in_.is_op("."))
      e = dot(std::move(e));
    else if (in_.is_op("["))
      e = subscript(std::move(e));
    else if (in_.is_op("("))
      e = call(std::move(e));
    else
      return e;
  }
}

ExpressionPtr ExpressionParser::filter_or_test(ExpressionPtr e) {
  for (int n = 0;; ++n) {
    if (n > kMaxNesting / 4) in_.error(in_.peek().at, "too many filters and tests in a row");
    if (in_.is_op("|")) {
      in_.take();
      e = filter(std::move(e));
    } else if (in_.is_name("is")) {
      e = test(std::move(e));
    } else if (in_.is_op("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExpressionPtr ExpressionParser::dot(ExpressionPtr e) {
  const Place at = in_.take().at;
  const Token name = in_.peek();
  if (name.kind == Token::Kind::integer) {
    in_.take();
    ExpressionPtr item = make_expression(Expression::Kind::item, at, std::move(e));
    item->parts.push_back(make_expression(Expression::Kind::constant, name.at));
    item->parts[1]->value = Value::integer(std::stoll(name.value));
    return item;
  }
  ExpressionPtr attribute = make_expression(Expression::Kind::attribute, name.at, std::move(e));
  attribute->name = in_.name();
  if (attribute->name.starts_with("__"))
    in_.error(name.at, "attributes such as '{}' are not supported", attribute->name);
  if (in_.is_op("(") && !is_method(attribute->name))
    in_.error(name.at, "the method '{}' is not supported", attribute->name);
  return attribute;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr e) {
  const Place at = in_.take().at;
  ExpressionPtr item = make_expression(Expression::Kind::item, at, std::move(e));
  ExpressionPtr first = in_.is_op(":") ? nullptr : expression();
  if (in_.is_op(",")) in_.error(in_.peek().at, "several subscripts at once are not supported");
  item->parts.push_back(std::move(first));
  if (in_.accept_op(":")) {
    item->kind = Expression::Kind::slice;
    item->parts.push_back(in_.is_op(":") || in_.is_op("]") ? nullptr : expression());
    item->parts.push_back(in_.accept_op(":") && !in_.is_op("]") ? expression() : nullptr);
  }
  in_.expect_op("]");
  return item;
}

}  // namespace plait::jinja
