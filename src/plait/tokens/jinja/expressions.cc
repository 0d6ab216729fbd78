#include "plait/tokens/jinja/interpreter.h"
#include "plait/tokens/jinja/python.h"

namespace plait::jinja {

// Evaluation within evaluation costs stack.
class Interpreter::Nested {
 public:
  explicit Nested(Interpreter& in) : in_(in) {
    constexpr int kDeepest = 600;
    if (in_.nesting_ >= kDeepest) problem("evaluation nested more than {} deep", kDeepest);
    ++in_.nesting_;
  }
  ~Nested() { --in_.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Interpreter& in_;
};

Value Interpreter::eval(const Expression& e) {
  return located(e.at, [&] {
    const Nested nested(*this);
    budget_.spend(1);
    return eval_plain(e);
  });
}

Value Interpreter::eval_plain(const Expression& e) {
  using Kind = Expression::Kind;
  switch (e.kind) {
    case Kind::constant:
      return e.value;
    case Kind::name:
      return eval_name(e);
    case Kind::list:
      return Value::list(eval_parts(e));
    case Kind::tuple:
      return Value::tuple(eval_parts(e));
    case Kind::dict:
      return eval_dict(e);
    case Kind::attribute:
      return attribute(eval(*e.parts[0]), e.name);
    case Kind::item: {
      const Value v = eval(*e.parts[0]);
      const Value key = eval(*e.parts[1]);
      if (v.is(Value::Kind::loop) && key.is_text()) return attribute(v, key.bytes());
      return item_of(v, key, budget_);
    }
    case Kind::slice:
      return eval_slice(e);
    case Kind::call:
      return eval_call(e, nullptr);
    case Kind::filter:
      return eval_filter(e, nullptr);
    case Kind::test: {
      const Value v = eval(*e.parts[0]);
      return Value::boolean(run_test(machine_, *find_test(e.name), v, eval_arguments(e.arguments)));
    }
    case Kind::logical_not:
      return Value::boolean(!eval(*e.parts[0]).truthy());
    case Kind::minus:
    case Kind::plus: {
      const Value v = eval(*e.parts[0]);
      if (v.is_undefined()) v.refuse_undefined();
      if (!v.is_number()) problem("a sign before a value of type {}", v.type_name());
      const bool minus = e.kind == Kind::minus;
      if (!v.is_whole()) return Value::real(minus ? -v.number() : v.number());
      return minus ? apply(Operator::subtract, Value::integer(0), v, budget_)
                   : Value::integer(v.whole());
    }
    case Kind::chain:
      return eval_chain(e);
    case Kind::compare:
      return eval_compare(e);
    case Kind::concat:
      return eval_concat(e);
    case Kind::logical_and:
      return eval_logical(e, false);
    case Kind::logical_or:
      return eval_logical(e, true);
    case Kind::conditional:
      return eval_conditional(e);
  }
  return {};
}

List Interpreter::eval_parts(const Expression& e) {
  List all;
  all.reserve(e.parts.size());
  for (const ExpressionPtr& part : e.parts) all.push_back(eval(*part));
  return all;
}

Value Interpreter::eval_name(const Expression& e) {
  const Value* v = scope_->find(e.name);
  if (v != nullptr) return *v;
  if (is_function(e.name)) {
    Function f;
    f.name = e.name;
    return Value::function(std::move(f));
  }
  return Value::undefined(fmt::format("'{}' is undefined", e.name));
}

Value Interpreter::eval_dict(const Expression& e) {
  Dict all;
  for (size_t i = 0; i < e.parts.size(); i += 2) {
    const Value key = eval(*e.parts[i]);
    all.set(key, eval(*e.parts[i + 1]), budget_);
  }
  return Value::dict(std::move(all));
}

Value Interpreter::eval_slice(const Expression& e) {
  const auto part = [&](size_t i) { return e.parts[i] ? eval(*e.parts[i]) : Value::none(); };
  const Value v = part(0), first = part(1), last = part(2), step = part(3);
  return slice_of(v, first, last, step, budget_);
}

Value Interpreter::eval_chain(const Expression& e) {
  Value v = eval(*e.parts[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    budget_.spend(1);
    v = apply(e.operators[i], v, eval(*e.parts[i + 1]), budget_);
  }
  return v;
}

Value Interpreter::eval_compare(const Expression& e) {
  Value left = eval(*e.parts[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    Value right = eval(*e.parts[i + 1]);
    if (!apply(e.operators[i], left, right, budget_).as_boolean()) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_concat(const Expression& e) {
  std::string all;
  for (const ExpressionPtr& part : e.parts) {
    append_str(all, eval(*part), budget_);
    budget_.limit(all.size());
  }
  budget_.text(all.size());
  return Value::text(std::move(all));
}

Value Interpreter::eval_logical(const Expression& e, bool either) {
  Value v;
  for (const ExpressionPtr& part : e.parts) {
    v = eval(*part);
    if (v.truthy() == either) return v;
  }
  return v;
}

Value Interpreter::eval_conditional(const Expression& e) {
  if (eval(*e.parts[1]).truthy()) return eval(*e.parts[0]);
  if (e.parts[2]) return eval(*e.parts[2]);
  return Value::undefined("the condition of the inline if is false, and it has no else");
}

Arguments Interpreter::eval_arguments(const std::vector<Argument>& all) {
  Arguments out;
  for (const Argument& a : all) {
    const Value v = eval(*a.value);
    switch (a.kind) {
      case Argument::Kind::plain:
        out.plain.push_back(v);
        break;
      case Argument::Kind::named:
        out.named.emplace_back(a.name, v);
        break;
      case Argument::Kind::spread:
        for (const Value& item : items_of(v, budget_)) out.plain.push_back(item);
        break;
      case Argument::Kind::spread_named:
        if (!v.is_dict()) problem("'**' before a value of type {}", v.type_name());
        for (const auto& [key, value] : v.dict().entries()) {
          if (!key.is_text()) problem("names of arguments must be texts");
          out.named.emplace_back(key.bytes(), value);
        }
        budget_.spend(static_cast<int64_t>(v.dict().size()));
    }
  }
  return out;
}

Value Interpreter::eval_call(const Expression& e, const Value* caller) {
  const Value callee = eval(*e.parts[0]);
  const Arguments a = eval_arguments(e.arguments);
  return call(callee, a, caller);
}

Value Interpreter::eval_filter(const Expression& e, const Value* input) {
  const Value v = e.parts[0] ? eval(*e.parts[0]) : *input;
  return run_filter(machine_, *find_filter(e.name), v, eval_arguments(e.arguments));
}

Value Interpreter::eval_all(const Expression& e, const Value& input) {
  if (!e.parts[0]) return located(e.at, [&] { return eval_filter(e, &input); });
  const Value v = eval_all(*e.parts[0], input);
  return located(e.at, [&] {
    return run_filter(machine_, *find_filter(e.name), v, eval_arguments(e.arguments));
  });
}

}  // namespace plait::jinja
