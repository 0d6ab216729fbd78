#include "plait/tokens/jinja/library.h"

#include <algorithm>

#include "plait/tokens/jinja/unicode.h"

namespace plait::jinja {

namespace {

// ---- lists and tuples ---------------------------------------------------------------------

Value count(Machine& m, const Value& self, const List& a) {
  int64_t n = 0;
  for (const Value& v : self.sequence().items) n += equal(v, a[0], m.budget) ? 1 : 0;
  return Value::integer(n);
}

Value index(Machine& m, const Value& self, const List& a) {
  const List& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], a[0], m.budget)) return Value::integer(static_cast<int64_t>(i));
  problem("index(): the list has no such item");
}

Value copy(Machine&, const Value& self, const List&) { return self; }

// ---- dicts --------------------------------------------------------------------------------

Value keys(Machine& m, const Value& self, const List&) {
  m.budget.spend(static_cast<int64_t>(self.dict().size()));
  List all;
  for (const auto& entry : self.dict().entries()) all.push_back(entry.first);
  return Value::view("dict_keys", std::move(all));
}

Value values(Machine& m, const Value& self, const List&) {
  m.budget.spend(static_cast<int64_t>(self.dict().size()));
  List all;
  for (const auto& entry : self.dict().entries()) all.push_back(entry.second);
  return Value::view("dict_values", std::move(all));
}

Value items(Machine& m, const Value& self, const List&) {
  m.budget.spend(static_cast<int64_t>(self.dict().size()));
  List all;
  for (const auto& [key, value] : self.dict().entries()) all.push_back(Value::tuple({key, value}));
  return Value::view("dict_items", std::move(all));
}

Value get(Machine& m, const Value& self, const List& a) {
  if (a[0].is_undefined()) return a[1].is_undefined() ? Value::none() : a[1];
  const Value* found = self.dict().find(a[0], m.budget);
  if (found != nullptr) return *found;
  return a[1].is_undefined() ? Value::none() : a[1];
}

// ---- tests --------------------------------------------------------------------------------

bool is_odd_even(const Value& v, bool odd, Budget& budget) {
  (void)budget;
  if (v.is_undefined()) v.refuse_undefined();
  if (!v.is_whole()) problem("odd and even are of integers, not of {}", v.type_name());
  return (v.whole() % 2 != 0) == odd;
}

bool divisible(Machine&, const Value& v, const List& a) {
  if (!v.is_whole() || !a[0].is_whole()) problem("divisibleby is of integers");
  if (a[0].whole() == 0) problem("division by zero");
  return a[0].whole() == -1 || v.whole() % a[0].whole() == 0;
}

template <bool (*F)(char32_t), bool (*Other)(char32_t)>
bool cased(Machine& m, const Value& v, const List&) {
  if (!v.is_text()) return false;
  m.budget.text(v.bytes().size());
  bool any = false;
  for (size_t at = 0; at < v.bytes().size();) {
    const char32_t c = next_character(v.bytes(), at);
    if (Other(c) || is_title(c)) return false;
    any = any || F(c);
  }
  return any;
}

bool same(Machine& m, const Value& v, const List& a) {
  if (v.kind() != a[0].kind()) return false;
  return v.identity() != nullptr ? v.identity() == a[0].identity() : equal(v, a[0], m.budget);
}

bool is_indexable(const Value& v) {
  return v.is_undefined() || v.is_text() || v.is_dict() ||
         (v.is(Value::Kind::sequence) && !v.is_sequence(Sequence::Kind::view));
}

using L = const List&;
using V = const Value&;
constexpr auto kEqual = [](Machine& m, V v, L a) { return equal(v, a[0], m.budget); };
constexpr auto kNotEqual = [](Machine& m, V v, L a) { return !equal(v, a[0], m.budget); };
constexpr auto kLess = [](Machine& m, V v, L a) { return compare(v, a[0], m.budget) < 0; };
constexpr auto kLessEqual = [](Machine& m, V v, L a) { return compare(v, a[0], m.budget) <= 0; };
constexpr auto kGreater = [](Machine& m, V v, L a) { return compare(v, a[0], m.budget) > 0; };
constexpr auto kGreaterEqual = [](Machine& m, V v, L a) { return compare(v, a[0], m.budget) >= 0; };

const std::vector<Test>& tests() {
  static const std::vector<Test> all = {
      {"defined", 0, [](Machine&, V v, L) { return !v.is_undefined(); }},
      {"undefined", 0, [](Machine&, V v, L) { return v.is_undefined(); }},
      {"none", 0, [](Machine&, V v, L) { return v.is_none(); }},
      {"boolean", 0, [](Machine&, V v, L) { return v.is(Value::Kind::boolean); }},
      {"true", 0, [](Machine&, V v, L) { return v.is(Value::Kind::boolean) && v.as_boolean(); }},
      {"false", 0, [](Machine&, V v, L) { return v.is(Value::Kind::boolean) && !v.as_boolean(); }},
      {"integer", 0, [](Machine&, V v, L) { return v.is(Value::Kind::integer); }},
      {"float", 0, [](Machine&, V v, L) { return v.is(Value::Kind::real); }},
      {"number", 0, [](Machine&, V v, L) { return v.is_number(); }},
      {"string", 0, [](Machine&, V v, L) { return v.is_text(); }},
      {"mapping", 0, [](Machine&, V v, L) { return v.is_dict(); }},
      {"sequence", 0, [](Machine&, V v, L) { return is_indexable(v); }},
      {"iterable", 0, [](Machine&, V v, L) { return is_iterable(v) || v.is(Value::Kind::loop); }},
      {"callable", 0, [](Machine&, V v, L) { return v.is(Value::Kind::function); }},
      {"lower", 0, cased<is_lower, is_upper>},
      {"upper", 0, cased<is_upper, is_lower>},
      {"odd", 0, [](Machine& m, V v, L) { return is_odd_even(v, true, m.budget); }},
      {"even", 0, [](Machine& m, V v, L) { return is_odd_even(v, false, m.budget); }},
      {"divisibleby", 1, divisible},
      {"sameas", 1, same},
      {"in", 1, [](Machine& m, V v, L a) { return contains(a[0], v, m.budget); }},
      {"equalto", 1, kEqual},
      {"eq", 1, kEqual},
      {"==", 1, kEqual},
      {"ne", 1, kNotEqual},
      {"!=", 1, kNotEqual},
      {"lt", 1, kLess},
      {"lessthan", 1, kLess},
      {"<", 1, kLess},
      {"le", 1, kLessEqual},
      {"<=", 1, kLessEqual},
      {"gt", 1, kGreater},
      {"greaterthan", 1, kGreater},
      {">", 1, kGreater},
      {"ge", 1, kGreaterEqual},
      {">=", 1, kGreaterEqual},
      {"filter", 0,
       [](Machine&, V v, L) { return v.is_text() && find_filter(v.bytes()) != nullptr; }},
      {"test", 0, [](Machine&, V v, L) { return v.is_text() && find_test(v.bytes()) != nullptr; }}};
  return all;
}

template <class T>
const T* find_in(std::span<const T> all, std::string_view name) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const T& t) { return t.name == name; });
  return at == all.end() ? nullptr : &*at;
}

}  // namespace

const Filter* find_filter(std::string_view name) {
  const Filter* f = find_in(text_filters(), name);
  return f != nullptr ? f : find_in(list_filters(), name);
}

const Test* find_test(std::string_view name) {
  return find_in(std::span<const Test>(tests()), name);
}

const Method* find_sequence_method(std::string_view name) {
  static const std::vector<Method> all = {
      {"count", {"value"}, 1, count}, {"index", {"value"}, 1, index}, {"copy", {}, 0, copy}};
  return find_in(std::span<const Method>(all), name);
}

const Method* find_dict_method(std::string_view name) {
  static const std::vector<Method> all = {{"items", {}, 0, items},
                                          {"keys", {}, 0, keys},
                                          {"values", {}, 0, values},
                                          {"get", {"key", "default"}, 1, get},
                                          {"copy", {}, 0, copy}};
  return find_in(std::span<const Method>(all), name);
}

bool is_method(std::string_view name) {
  return find_text_method(name) != nullptr || find_sequence_method(name) != nullptr ||
         find_dict_method(name) != nullptr || name == "cycle" || name == "changed" ||
         is_change(name);
}

bool is_change(std::string_view name) {
  static constexpr std::string_view kAll[] = {"append", "clear",   "extend", "insert",
                                              "pop",    "popitem", "remove", "setdefault",
                                              "sort",   "update"};
  return std::find(std::begin(kAll), std::end(kAll), name) != std::end(kAll);
}

List Arguments::bind(std::string_view what, std::span<const std::string_view> names,
                     size_t required) const {
  if (plain.size() > names.size())
    problem("{} takes {} arguments, found {}", what, names.size(), plain.size());
  List all = plain;
  all.resize(names.size());
  std::vector<bool> given(names.size(), false);
  std::fill(given.begin(), given.begin() + static_cast<int64_t>(plain.size()), true);
  for (const auto& [name, value] : named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) problem("{} has no argument '{}'", what, name);
    const auto i = static_cast<size_t>(at - names.begin());
    if (given[i]) problem("{}: the argument '{}' is given twice", what, name);
    given[i] = true;
    all[i] = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!given[i]) problem("{} needs an argument '{}'", what, names[i]);
  return all;
}

Value run_filter(Machine& machine, const Filter& f, const Value& v, const Arguments& a) {
  machine.budget.spend(1);
  if (f.run_free != nullptr) return f.run_free(machine, v, a);
  return f.run(machine, v,
               a.bind(fmt::format("the filter '{}'", f.name), f.parameters, f.required));
}

bool run_test(Machine& machine, const Test& t, const Value& v, const Arguments& a) {
  machine.budget.spend(1);
  if (!a.named.empty() || a.plain.size() != t.arguments)
    problem("the test '{}' takes {} arguments, found {}", t.name, t.arguments,
            a.plain.size() + a.named.size());
  return t.run(machine, v, a.plain);
}

Value run_method(Machine& machine, const Method& m, const Value& self, const Arguments& a) {
  if (m.run_free != nullptr) return m.run_free(machine, self, a);
  return m.run(machine, self, a.bind(fmt::format("{}()", m.name), m.parameters, m.required));
}

}  // namespace plait::jinja
