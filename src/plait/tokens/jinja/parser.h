// Tokens to syntax.
#pragma once

#include <algorithm>

#include "plait/tokens/jinja/lexer.h"
#include "plait/tokens/jinja/syntax.h"

namespace plait::jinja {

// Throws Error with the place of what is wrong, or not supported.
Body parse(std::string_view text, const std::string& source);

// Walks over tokens; shared by the parsers of expressions and of statements.
class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, const std::string& source)
      : tokens_(std::move(tokens)), source_(source) {}

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& take() {
    const Token& t = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return t;
  }
  bool is(Token::Kind kind) const { return peek().kind == kind; }
  bool is_op(std::string_view op, size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::op && peek(ahead).value == op;
  }
  bool is_name(std::string_view name, size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::name && peek(ahead).value == name;
  }
  bool accept_op(std::string_view op);
  bool accept_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect(Token::Kind kind);
  std::string name();  // any name

  // Does the name stand anywhere from token `begin` to here?
  size_t position() const { return at_; }
  bool mentions(size_t begin, std::string_view name) const;

  template <class... Args>
  [[noreturn]] void error(Place at, fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(source_, at, format, std::forward<Args>(args)...);
  }

 private:
  std::vector<Token> tokens_;
  const std::string& source_;
  size_t at_ = 0;
};

std::string describe(const Token& token);
ExpressionPtr make_expression(Expression::Kind kind, Place at);
ExpressionPtr make_expression(Expression::Kind kind, Place at, ExpressionPtr part);

// Expressions, from the loosest to the tightest.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& in) : in_(in) {}

  ExpressionPtr expression();         // with an inline if
  ExpressionPtr without_condition();  // as after `in` of a loop, and `if`
  // Expressions with commas between them are a tuple.
  ExpressionPtr tuple(bool with_condition);
  // name(.name)* and its arguments, behind a '|'; applied to `value`, which may be null.
  ExpressionPtr filter(ExpressionPtr value);
  ExpressionPtr filters(ExpressionPtr value);  // `| a | b`, or value itself

 private:
  friend class Deeper;
  ExpressionPtr logical(bool either);
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concat();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr e);
  ExpressionPtr filter_or_test(ExpressionPtr e);
  ExpressionPtr dot(ExpressionPtr e);
  ExpressionPtr subscript(ExpressionPtr e);
  ExpressionPtr call(ExpressionPtr callee);
  ExpressionPtr test(ExpressionPtr e);
  std::vector<Argument> arguments();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr parenthesized();
  void check_filter(const Expression& e) const;
  void check_test(const Expression& e) const;
  bool at_tuple_end() const;

  TokenStream& in_;
  int depth_ = 0;
};

}  // namespace plait::jinja
