// Runs a parsed template.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "plait/tokens/jinja/library.h"
#include "plait/tokens/jinja/syntax.h"

namespace plait::jinja {

// Variables of one block; what it does not have, the block around it may.
class Scope {
 public:
  explicit Scope(Scope* outer) : outer_(outer) {}
  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value) { values_[name] = std::move(value); }
  Scope* outer() const { return outer_; }

  bool kept = false;  // a macro was defined in it, or within: it outlives its block

 private:
  Scope* outer_;
  std::map<std::string, Value, std::less<>> values_;
};

struct RunLimits {
  int64_t steps = 0, output_bytes = 0;
  int depth = 0;
};

struct Rendered {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generated;  // first byte, byte behind the last one
};

class Interpreter {
 public:
  // `now`: seconds since 1970 for strftime_now.
  Interpreter(const std::string& source, const RunLimits& limits, int64_t now);

  void set(const std::string& name, Value value) { globals_.set(name, std::move(value)); }
  Budget& budget() { return budget_; }
  Rendered run(const Body& body);

 private:
  enum class Flow { on, leave, next };
  class Block;
  class Nested;

  // statements.cc
  Flow run_body(const Body& body);
  Flow run_statement(const Statement& s);
  Flow run_condition(const Statement& s);
  Flow run_loop(const Statement& s);
  void run_generation(const Statement& s);
  void run_call(const Statement& s);
  std::string captured(const Body& body);  // in a scope of its own
  void write(std::string_view text);
  void assign(const Target& target, const Value& value);
  void define(const std::shared_ptr<const Macro>& macro);
  Value bound(const std::shared_ptr<const Macro>& macro);
  void keep_scopes();
  Value call_macro(const Function& f, const Arguments& a, const Value* caller);
  void bind_parameters(const Macro& m, const Arguments& a, const Value* caller);

  // expressions.cc
  Value eval(const Expression& e);
  Value eval_plain(const Expression& e);
  Value eval_name(const Expression& e);
  Value eval_dict(const Expression& e);
  Value eval_slice(const Expression& e);
  Value eval_chain(const Expression& e);
  Value eval_compare(const Expression& e);
  Value eval_concat(const Expression& e);
  Value eval_logical(const Expression& e, bool either);
  Value eval_conditional(const Expression& e);
  Value eval_call(const Expression& e, const Value* caller);
  Value eval_filter(const Expression& e, const Value* input);
  Value eval_all(const Expression& e, const Value& input);  // filters on what a block rendered
  List eval_parts(const Expression& e);
  Arguments eval_arguments(const std::vector<Argument>& all);

  // calls.cc
  Value call(const Value& callee, const Arguments& a, const Value* caller);
  Value call_function(const std::string& name, const Arguments& a);
  Value call_method(const Function& f, const Arguments& a);
  Value attribute(const Value& v, const std::string& name);
  static bool is_function(std::string_view name);

  template <class F>
  auto located(Place at, F f) -> decltype(f());

  const std::string& source_;
  Budget budget_;
  Machine machine_;
  size_t output_limit_;
  int depth_limit_;
  int64_t now_;
  int calls_ = 0, nesting_ = 0, captures_ = 0;
  Scope globals_;
  Scope* scope_;
  std::string out_;
  std::vector<std::pair<size_t, size_t>> generated_;
  std::vector<std::unique_ptr<Scope>> kept_;
  std::vector<std::shared_ptr<const Macro>> macros_;
};

Value add(const Value& a, const Value& b, Budget& budget);
Value apply(Operator op, const Value& a, const Value& b, Budget& budget);

template <class F>
auto Interpreter::located(Place at, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const Problem& p) {
    fail_at(source_, at, "{}", p.message);
  }
}

}  // namespace plait::jinja
