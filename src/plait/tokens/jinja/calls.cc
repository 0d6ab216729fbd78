#include "plait/tokens/jinja/interpreter.h"
#include "plait/tokens/jinja/python.h"

namespace plait::jinja {

namespace {

// dict(...) and namespace(...): a mapping or pairs, then names.
Dict dict_of(const Arguments& a, Budget& budget) {
  Dict all;
  if (a.plain.size() > 1) problem("dict() and namespace() take one plain argument at most");
  if (a.plain.size() == 1) {
    const Value& from = a.plain[0];
    if (from.is_undefined()) from.refuse_undefined();
    if (from.is_dict()) {
      budget.spend(static_cast<int64_t>(from.dict().size()));
      all = from.dict();
    } else {
      for (const Value& pair : items_of(from, budget)) {
        const List both = items_of(pair, budget);
        if (both.size() != 2) problem("dict() needs pairs");
        all.set(both[0], both[1], budget);
      }
    }
  }
  for (const auto& [name, value] : a.named) all.set(Value::text(name), value, budget);
  return all;
}

Value new_space(const Arguments& a, Budget& budget) {
  const Dict all = dict_of(a, budget);
  auto space = std::make_shared<Space>();
  for (const auto& [key, value] : all.entries()) {
    if (!key.is_text()) problem("names of a namespace must be texts");
    if (key.bytes().starts_with("_")) problem("names of a namespace do not begin with '_'");
    space->attributes[key.bytes()] = value;
  }
  return Value::space(std::move(space));
}

Value new_range(const Arguments& a, Budget& budget) {
  if (!a.named.empty() || a.plain.empty() || a.plain.size() > 3)
    problem("range() takes one to three integers");
  for (const Value& v : a.plain) {
    if (v.is_undefined()) v.refuse_undefined();
    if (!v.is_whole()) problem("range() takes integers, found {}", v.type_name());
  }
  if (a.plain.size() == 1) return Value::range(0, a.plain[0].whole(), 1, budget);
  return Value::range(a.plain[0].whole(), a.plain[1].whole(),
                      a.plain.size() == 3 ? a.plain[2].whole() : 1, budget);
}

Value loop_attribute(const Value& v, const std::string& name) {
  Loop& loop = v.loop();
  const auto index = static_cast<int64_t>(loop.at), count = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return index > 0 ? loop.items[loop.at - 1]
                     : Value::undefined("there is no item before the first");
  if (name == "nextitem")
    return index + 1 < count ? loop.items[loop.at + 1]
                             : Value::undefined("there is no item behind the last");
  if (name == "cycle" || name == "changed") {
    Function f;
    f.name = name;
    f.method = true;
    f.self = v;
    return Value::function(std::move(f));
  }
  return Value::undefined(fmt::format("a loop has no '{}'", name));
}

Value loop_method(Loop& loop, const std::string& name, const Arguments& a, Budget& budget) {
  if (!a.named.empty()) problem("loop.{}() has no named arguments", name);
  if (name == "cycle") {
    if (a.plain.empty()) problem("loop.cycle() needs arguments");
    return a.plain[loop.at % a.plain.size()];
  }
  const Value now = Value::tuple(a.plain);
  if (loop.has_changed && equal(loop.changed, now, budget)) return Value::boolean(false);
  loop.changed = now;
  loop.has_changed = true;
  return Value::boolean(true);
}

}  // namespace

bool Interpreter::is_function(std::string_view name) {
  return name == "range" || name == "dict" || name == "namespace" || name == "raise_exception" ||
         name == "strftime_now";
}

Value Interpreter::attribute(const Value& v, const std::string& name) {
  if (v.is(Value::Kind::loop)) return loop_attribute(v, name);
  return attribute_of(v, name, budget_);
}

Value Interpreter::call(const Value& callee, const Arguments& a, const Value* caller) {
  if (callee.is_undefined()) callee.refuse_undefined();
  if (callee.is(Value::Kind::loop)) problem("recursive loops are not supported");
  if (!callee.is(Value::Kind::function))
    problem("a value of type {} cannot be called", callee.type_name());
  const Function& f = callee.function();
  if (f.macro != nullptr) return call_macro(f, a, caller);
  if (caller != nullptr) problem("'{}' takes no block; only macros do", f.name);
  return f.method ? call_method(f, a) : call_function(f.name, a);
}

Value Interpreter::call_function(const std::string& name, const Arguments& a) {
  if (name == "range") return new_range(a, budget_);
  if (name == "dict") return Value::dict(dict_of(a, budget_));
  if (name == "namespace") return new_space(a, budget_);
  static constexpr std::string_view kMessage[] = {"message"}, kFormat[] = {"format"};
  if (name == "raise_exception") {
    const List bound = a.bind("raise_exception()", kMessage, 1);
    throw Problem{str(bound[0], budget_).bytes()};
  }
  const List bound = a.bind("strftime_now()", kFormat, 1);
  if (!bound[0].is_text()) problem("strftime_now() takes a text");
  return Value::text(time_text(now_, bound[0].bytes()));
}

Value Interpreter::call_method(const Function& f, const Arguments& a) {
  if (f.self.is(Value::Kind::loop)) return loop_method(f.self.loop(), f.name, a, budget_);
  const Method* m = f.self.is_text()   ? find_text_method(f.name)
                    : f.self.is_dict() ? find_dict_method(f.name)
                                       : find_sequence_method(f.name);
  return run_method(machine_, *m, f.self, a);
}

}  // namespace plait::jinja
