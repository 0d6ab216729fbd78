// A parsed template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plait/tokens/jinja/lexer.h"
#include "plait/tokens/jinja/value.h"

namespace plait::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class Operator {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};

struct Argument {
  enum class Kind { plain, named, spread, spread_named };  // x, name=x, *x, **x
  Kind kind = Kind::plain;
  std::string name;
  ExpressionPtr value;
};

// What `parts`, `name` and the rest hold depends on the kind, as said there.
struct Expression {
  enum class Kind {
    constant,     // value
    name,         // name
    list,         // parts
    tuple,        // parts
    dict,         // parts: key, value, key, value, ...
    attribute,    // parts[0] . name
    item,         // parts[0] [ parts[1] ]
    slice,        // parts[0] [ parts[1] : parts[2] : parts[3] ], each but the first may be null
    call,         // parts[0] ( arguments )
    filter,       // parts[0] | name ( arguments ); parts[0] null: what a block rendered
    test,         // parts[0] is name ( arguments )
    logical_not,  // parts[0]
    minus,        // parts[0]
    plus,         // parts[0]
    chain,        // parts[0] operators[0] parts[1] operators[1] ..., from the left
    compare,      // the same, as Python's a < b < c
    concat,       // parts, as text
    logical_and,  // parts
    logical_or,   // parts
    conditional   // parts[0] if parts[1] else parts[2], which may be null
  };
  Kind kind;
  Place at;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> parts;
  std::vector<Operator> operators;
  std::vector<Argument> arguments;
};

// Where a value is assigned to.
struct Target {
  Place at;
  std::string name;           // empty: a tuple
  std::string attribute;      // of the namespace `name`; empty: the variable itself
  std::vector<Target> parts;  // of a tuple
};

struct Statement;
using Body = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: none
};

// A macro, or the body of a call block.
struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Statement {
  enum class Kind {
    data,        // text
    output,      // value
    condition,   // branches: value null for else
    loop,        // target, value, filter, body, otherwise
    assign,      // target, value
    capture,     // target, value (filters, or null), body
    macro,       // macro
    call,        // value (a call), macro: the body
    filter,      // value (filters), body
    scope,       // with: assignments, body
    generation,  // body
    leave,       // break
    next         // continue
  };
  struct Branch {
    ExpressionPtr condition;
    Body body;
  };
  Kind kind;
  Place at;
  std::string text;
  ExpressionPtr value, filter;
  Target target;
  Body body, otherwise;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  std::shared_ptr<const Macro> macro;
};

}  // namespace plait::jinja
