#include "plait/tokens/jinja/interpreter.h"
#include "plait/tokens/jinja/python.h"

namespace plait::jinja {

// A scope within the present one, for as long as this lives.
class Interpreter::Block {
 public:
  Block(Interpreter& in, Scope* outer)
      : in_(in), before_(in.scope_), scope_(std::make_unique<Scope>(outer)) {
    in_.scope_ = scope_.get();
  }
  explicit Block(Interpreter& in) : Block(in, in.scope_) {}
  ~Block() {
    in_.scope_ = before_;
    if (scope_->kept) in_.kept_.push_back(std::move(scope_));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

 private:
  Interpreter& in_;
  Scope* before_;
  std::unique_ptr<Scope> scope_;
};

const Value* Scope::find(std::string_view name) const {
  for (const Scope* s = this; s != nullptr; s = s->outer_) {
    const auto at = s->values_.find(name);
    if (at != s->values_.end()) return &at->second;
  }
  return nullptr;
}

Interpreter::Interpreter(const std::string& source, const RunLimits& limits, int64_t now)
    : source_(source),
      budget_(limits.steps, limits.output_bytes),
      machine_{budget_,
               [this](std::string_view name, const Value& v, const Arguments& a) {
                 const Filter* f = find_filter(name);
                 if (f == nullptr) problem("the filter '{}' is not supported", name);
                 return run_filter(machine_, *f, v, a);
               },
               [this](std::string_view name, const Value& v, const Arguments& a) {
                 const Test* t = find_test(name);
                 if (t == nullptr) problem("the test '{}' is not supported", name);
                 return run_test(machine_, *t, v, a);
               }},
      output_limit_(static_cast<size_t>(limits.output_bytes)),
      depth_limit_(limits.depth),
      now_(now),
      globals_(nullptr),
      scope_(&globals_) {}

Rendered Interpreter::run(const Body& body) {
  out_.clear();
  generated_.clear();
  const Block block(*this);
  run_body(body);
  return {std::move(out_), std::move(generated_)};
}

void Interpreter::write(std::string_view text) {
  if (text.size() > output_limit_ - std::min(output_limit_, out_.size()))
    problem("the template writes more than {} bytes", output_limit_);
  out_ += text;
}

Interpreter::Flow Interpreter::run_body(const Body& body) {
  for (const Statement& s : body) {
    const Flow flow = run_statement(s);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::run_statement(const Statement& s) {
  return located(s.at, [&] {
    budget_.spend(1);
    switch (s.kind) {
      case Statement::Kind::data:
        budget_.text(s.text.size());
        write(s.text);
        return Flow::on;
      case Statement::Kind::output:
        write(str(eval(*s.value), budget_).bytes());
        return Flow::on;
      case Statement::Kind::condition:
        return run_condition(s);
      case Statement::Kind::loop:
        return run_loop(s);
      case Statement::Kind::assign:
        assign(s.target, eval(*s.value));
        return Flow::on;
      case Statement::Kind::capture: {
        const Value text = Value::text(captured(s.body));
        assign(s.target, s.value ? eval_all(*s.value, text) : text);
        return Flow::on;
      }
      case Statement::Kind::macro:
        define(s.macro);
        return Flow::on;
      case Statement::Kind::call:
        run_call(s);
        return Flow::on;
      case Statement::Kind::filter: {
        const Value text = Value::text(captured(s.body));
        write(str(eval_all(*s.value, text), budget_).bytes());
        return Flow::on;
      }
      case Statement::Kind::scope: {
        List values;
        for (const auto& assignment : s.assignments) values.push_back(eval(*assignment.second));
        const Block block(*this);
        for (size_t i = 0; i < values.size(); ++i) assign(s.assignments[i].first, values[i]);
        return run_body(s.body);
      }
      case Statement::Kind::generation:
        run_generation(s);
        return Flow::on;
      case Statement::Kind::leave:
        return Flow::leave;
      case Statement::Kind::next:
        return Flow::next;
    }
    return Flow::on;
  });
}

Interpreter::Flow Interpreter::run_condition(const Statement& s) {
  for (const Statement::Branch& branch : s.branches)
    if (!branch.condition || eval(*branch.condition).truthy()) return run_body(branch.body);
  return Flow::on;
}

Interpreter::Flow Interpreter::run_loop(const Statement& s) {
  const Value iterated = eval(*s.value);
  auto loop = std::make_shared<Loop>();
  loop->items = located(s.value->at, [&] { return items_of(iterated, budget_); });
  if (s.filter) {
    List kept;
    for (const Value& item : loop->items) {
      const Block block(*this);
      assign(s.target, item);
      if (eval(*s.filter).truthy()) kept.push_back(item);
    }
    loop->items = std::move(kept);
  }
  loop->depth = iterated.depth() + 1;
  const Value variable = Value::loop(loop);
  bool ran = false;  // to its end at least once, which is what decides on `else` in Jinja
  for (; loop->at < loop->items.size(); ++loop->at) {
    budget_.spend(1);
    const Block block(*this);
    assign(s.target, loop->items[loop->at]);
    scope_->set("loop", variable);
    const Flow flow = run_body(s.body);
    ran = ran || flow == Flow::on;
    if (flow == Flow::leave) break;
  }
  if (ran || s.otherwise.empty()) return Flow::on;
  const Block block(*this);
  return run_body(s.otherwise);
}

std::string Interpreter::captured(const Body& body) {
  std::string before = std::move(out_);
  out_.clear();
  ++captures_;
  {
    const Block block(*this);
    run_body(body);
  }
  --captures_;
  std::string text = std::move(out_);
  out_ = std::move(before);
  budget_.text(text.size());
  return text;
}

// As in Hugging Face's tracker the block has its own variables, and its place is known only where
// it is written out directly.
void Interpreter::run_generation(const Statement& s) {
  const std::string text = captured(s.body);
  if (captures_ == 0) generated_.emplace_back(out_.size(), out_.size() + text.size());
  write(text);
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value* space = scope_->find(target.name);
    if (space == nullptr || !space->is(Value::Kind::space))
      fail_at(source_, target.at, "'{}' is no namespace; its attributes cannot be set",
              target.name);
    located(target.at, [&] {
      Value::list({value});  // refuses what may not be stored
      space->space().attributes[target.attribute] = value;
    });
  } else if (!target.name.empty()) {
    scope_->set(target.name, value);
  } else {
    located(target.at, [&] {
      const List items = items_of(value, budget_);
      if (items.size() != target.parts.size())
        problem("{} values for {} names", items.size(), target.parts.size());
      for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    });
  }
}

void Interpreter::keep_scopes() {
  for (Scope* s = scope_; s != nullptr && !s->kept; s = s->outer()) s->kept = true;
}

Value Interpreter::bound(const std::shared_ptr<const Macro>& macro) {
  keep_scopes();
  macros_.push_back(macro);
  Function f;
  f.name = macro->name;
  f.macro = macro.get();
  f.scope = scope_;
  return Value::function(std::move(f));
}

void Interpreter::define(const std::shared_ptr<const Macro>& macro) {
  scope_->set(macro->name, bound(macro));
}

void Interpreter::run_call(const Statement& s) {
  const Value caller = bound(s.macro);
  write(str(eval_call(*s.value, &caller), budget_).bytes());
}

Value Interpreter::call_macro(const Function& f, const Arguments& a, const Value* caller) {
  if (calls_ >= depth_limit_) problem("macros nested more than {} deep", depth_limit_);
  std::string before = std::move(out_);
  out_.clear();
  ++calls_;
  ++captures_;
  {
    const Block block(*this, f.scope);
    bind_parameters(*f.macro, a, caller);
    run_body(f.macro->body);
  }
  --captures_;
  --calls_;
  std::string text = std::move(out_);
  out_ = std::move(before);
  budget_.text(text.size());
  return Value::text(std::move(text));
}

void Interpreter::bind_parameters(const Macro& m, const Arguments& a, const Value* caller) {
  std::vector<bool> used(a.named.size(), false);
  for (size_t i = 0; i < m.parameters.size(); ++i) {
    const Parameter& p = m.parameters[i];
    const Value* given = i < a.plain.size() ? &a.plain[i] : nullptr;
    for (size_t k = 0; k < a.named.size(); ++k) {
      if (a.named[k].first != p.name) continue;
      if (given != nullptr) problem("macro '{}': argument '{}' is given twice", m.name, p.name);
      given = &a.named[k].second;
      used[k] = true;
    }
    if (given != nullptr)
      scope_->set(p.name, *given);
    else if (p.fallback)
      scope_->set(p.name, eval(*p.fallback));
    else
      scope_->set(p.name, Value::undefined(fmt::format("the parameter '{}' of '{}' was not given",
                                                       p.name, m.name)));
  }
  if (m.uses_caller && m.name != "caller")
    scope_->set("caller", caller != nullptr ? *caller : Value::undefined("no caller is defined"));
  else if (caller != nullptr)
    problem("macro '{}' uses no caller()", m.name);
  List more;
  for (size_t i = m.parameters.size(); i < a.plain.size(); ++i) more.push_back(a.plain[i]);
  if (!more.empty() && !m.uses_varargs)
    problem("macro '{}' takes {} arguments, found {}", m.name, m.parameters.size(), a.plain.size());
  Dict named;
  for (size_t k = 0; k < a.named.size(); ++k) {
    if (used[k]) continue;
    if (!m.uses_kwargs) problem("macro '{}' has no argument '{}'", m.name, a.named[k].first);
    named.set(Value::text(a.named[k].first), a.named[k].second, budget_);
  }
  if (m.uses_varargs) scope_->set("varargs", Value::tuple(std::move(more)));
  if (m.uses_kwargs) scope_->set("kwargs", Value::dict(std::move(named)));
}

}  // namespace plait::jinja
