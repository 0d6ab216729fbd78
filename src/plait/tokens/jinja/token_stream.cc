#include "plait/tokens/jinja/parser.h"

namespace plait::jinja {

ExpressionPtr make_expression(Expression::Kind kind, Place at) {
  auto e = std::make_unique<Expression>();
  e->kind = kind;
  e->at = at;
  return e;
}

ExpressionPtr make_expression(Expression::Kind kind, Place at, ExpressionPtr part) {
  auto e = make_expression(kind, at);
  e->parts.push_back(std::move(part));
  return e;
}

bool TokenStream::accept_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}

bool TokenStream::accept_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

void TokenStream::expect_op(std::string_view op) {
  if (!accept_op(op)) error(peek().at, "expected '{}', found {}", op, describe(peek()));
}

void TokenStream::expect_name(std::string_view name) {
  if (!accept_name(name)) error(peek().at, "expected '{}', found {}", name, describe(peek()));
}

void TokenStream::expect(Token::Kind kind) {
  Token wanted;
  wanted.kind = kind;
  if (!is(kind)) error(peek().at, "expected {}, found {}", describe(wanted), describe(peek()));
  take();
}

std::string TokenStream::name() {
  if (!is(Token::Kind::name)) error(peek().at, "expected a name, found {}", describe(peek()));
  return take().value;
}

bool TokenStream::mentions(size_t begin, std::string_view name) const {
  return std::any_of(
      tokens_.begin() + static_cast<int64_t>(begin), tokens_.begin() + static_cast<int64_t>(at_),
      [&](const Token& t) { return t.kind == Token::Kind::name && t.value == name; });
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::data:
      return "text";
    case Token::Kind::block_begin:
      return "'{%'";
    case Token::Kind::block_end:
      return "'%}'";
    case Token::Kind::variable_begin:
      return "'{{'";
    case Token::Kind::variable_end:
      return "'}}'";
    case Token::Kind::text:
      return "a string";
    case Token::Kind::end:
      return "the end of the template";
    default:
      return "'" + token.value + "'";
  }
}

}  // namespace plait::jinja
