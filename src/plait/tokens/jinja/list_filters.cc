#include <algorithm>

#include "plait/tokens/jinja/interpreter.h"
#include "plait/tokens/jinja/library.h"
#include "plait/tokens/jinja/python.h"
#include "plait/tokens/jinja/unicode.h"

namespace plait::jinja {

namespace {

// An attribute as filters take it: "a.b", "items.0", or an integer.
List attribute_path(const Value& attribute) {
  if (!attribute.is_text()) return {attribute};
  List parts;
  const std::string& s = attribute.bytes();
  for (size_t begin = 0;;) {
    const size_t end = std::min(s.find('.', begin), s.size());
    const std::string part = s.substr(begin, end - begin);
    const bool digits =
        !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    parts.push_back(digits ? Value::integer(std::stoll(part)) : Value::text(part));
    if (end == s.size()) return parts;
    begin = end + 1;
  }
}

Value at_path(Machine& m, Value v, const List& path, const Value& absent) {
  for (const Value& part : path) {
    v = item_of(v, part, m.budget);
    if (!absent.is_undefined() && v.is_undefined()) v = absent;
  }
  return v;
}

bool given(const Value& v) { return !v.is_undefined() && !v.is_none(); }

Value without_case(Machine& m, const Value& v) {
  if (!v.is_text()) return v;
  m.budget.text(v.bytes().size());
  return Value::text(to_lower(v.bytes()));
}

// What items are ordered or told apart by.
Value key_of(Machine& m, const Value& item, const Value& attribute, bool case_sensitive) {
  const Value v = given(attribute) ? at_path(m, item, attribute_path(attribute), {}) : item;
  return case_sensitive ? v : without_case(m, v);
}

// Items with their keys, in the order of these; equal ones keep theirs.
List sorted(Machine& m, std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first, m.budget) < 0
                   : compare(a.first, b.first, m.budget) < 0;
  });
  List all;
  for (auto& entry : keyed) all.push_back(std::move(entry.second));
  return all;
}

Value sort(Machine& m, const Value& v, const List& a) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items_of(v, m.budget)) {
    List keys;
    if (a[2].is_text()) {
      const std::string& names = a[2].bytes();
      for (size_t begin = 0;;) {
        const size_t end = std::min(names.find(',', begin), names.size());
        keys.push_back(
            key_of(m, item, Value::text(names.substr(begin, end - begin)), a[1].truthy()));
        if (end == names.size()) break;
        begin = end + 1;
      }
    } else {
      keys.push_back(key_of(m, item, a[2], a[1].truthy()));
    }
    keyed.emplace_back(Value::list(std::move(keys)), item);
  }
  return Value::list(sorted(m, std::move(keyed), a[0].truthy()));
}

Value dictsort(Machine& m, const Value& v, const List& a) {
  if (v.is_undefined()) v.refuse_undefined();
  if (!v.is_dict()) problem("dictsort is of a dict, not of {}", v.type_name());
  const std::string by = a[1].is_undefined() ? "key" : str(a[1], m.budget).bytes();
  if (by != "key" && by != "value") problem("dictsort knows by='key' and by='value'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : v.dict().entries())
    keyed.emplace_back(key_of(m, by == "key" ? key : value, {}, a[0].truthy()),
                       Value::tuple({key, value}));
  return Value::list(sorted(m, std::move(keyed), a[2].truthy()));
}

Value unique(Machine& m, const Value& v, const List& a) {
  Dict seen;
  List all;
  for (const Value& item : items_of(v, m.budget)) {
    const Value key = key_of(m, item, a[1], a[0].truthy());
    if (seen.find(key, m.budget) != nullptr) continue;
    seen.set(key, Value::none(), m.budget);
    all.push_back(item);
  }
  return Value::generator(std::move(all));
}

Value extreme(Machine& m, const Value& v, const List& a, bool largest) {
  const List items = items_of(v, m.budget);
  if (items.empty()) return Value::undefined("the list is empty");
  Value best = items[0], best_key = key_of(m, best, a[1], a[0].truthy());
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(m, items[i], a[1], a[0].truthy());
    const int order = compare(key, best_key, m.budget);
    if (largest ? order <= 0 : order >= 0) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}
Value smallest(Machine& m, const Value& v, const List& a) { return extreme(m, v, a, false); }
Value largest(Machine& m, const Value& v, const List& a) { return extreme(m, v, a, true); }

Value first(Machine& m, const Value& v, const List&) {
  if (v.is(Value::Kind::generator)) {
    Generator& g = v.generator();
    if (g.next < g.items.size()) return g.items[g.next++];
    return Value::undefined("there is no first item");
  }
  const List items = items_of(v, m.budget);
  return items.empty() ? Value::undefined("there is no first item") : items.front();
}

void need_order(const Value& v, std::string_view what) {
  if (v.is_undefined()) v.refuse_undefined();
  if (!is_iterable(v) || v.is(Value::Kind::generator))
    problem("{} is of a list, not of {}", what, v.type_name());
}

Value last(Machine& m, const Value& v, const List&) {
  need_order(v, "last");
  const List items = items_of(v, m.budget);
  return items.empty() ? Value::undefined("there is no last item") : items.back();
}

Value reverse(Machine& m, const Value& v, const List&) {
  if (v.is_undefined()) v.refuse_undefined();
  List items = items_of(v, m.budget);
  std::reverse(items.begin(), items.end());
  if (!v.is_text())
    return v.is(Value::Kind::generator) ? Value::list(std::move(items))
                                        : Value::generator(std::move(items));
  std::string out;
  for (const Value& c : items) out += c.bytes();
  return Value::text(std::move(out));
}

Value length(Machine& m, const Value& v, const List&) {
  if (v.is_text()) m.budget.text(v.bytes().size());
  return Value::integer(length_of(v));
}

Value list(Machine& m, const Value& v, const List&) { return Value::list(items_of(v, m.budget)); }

Value items(Machine& m, const Value& v, const List&) {
  if (v.is_undefined()) return Value::generator({});
  if (!v.is_dict()) problem("items is of a dict, not of {}", v.type_name());
  m.budget.spend(static_cast<int64_t>(v.dict().size()));
  List all;
  for (const auto& [key, value] : v.dict().entries()) all.push_back(Value::tuple({key, value}));
  return Value::generator(std::move(all));
}

Value join(Machine& m, const Value& v, const List& a) {
  const std::string between = str(a[0], m.budget).bytes();
  std::string out;
  bool begun = false;
  for (const Value& item : items_of(v, m.budget)) {
    if (begun) out += between;
    begun = true;
    append_str(out, given(a[1]) ? at_path(m, item, attribute_path(a[1]), {}) : item, m.budget);
    m.budget.limit(out.size());
  }
  m.budget.text(out.size());
  return Value::text(std::move(out));
}

Value fallback(Machine&, const Value& v, const List& a) {
  const bool use = v.is_undefined() || (a[1].truthy() && !v.truthy());
  if (!use) return v;
  return a[0].is_undefined() ? Value::text("") : a[0];
}

Value sum(Machine& m, const Value& v, const List& a) {
  Value all = a[1].is_undefined() ? Value::integer(0) : a[1];
  if (all.is_text()) problem("sum() adds no texts; use join()");
  for (const Value& item : items_of(v, m.budget))
    all = add(all, given(a[0]) ? at_path(m, item, attribute_path(a[0]), {}) : item, m.budget);
  return all;
}

// ---- filters with free arguments ----------------------------------------------------------

const Value* take_named(const Arguments& a, std::string_view name) {
  for (const auto& entry : a.named)
    if (entry.first == name) return &entry.second;
  return nullptr;
}

Value map(Machine& m, const Value& v, const Arguments& a) {
  List all;
  const Value* attribute = a.plain.empty() ? take_named(a, "attribute") : nullptr;
  if (attribute != nullptr) {
    const Value* absent = take_named(a, "default");
    if (a.named.size() != (absent != nullptr ? 2U : 1U)) problem("map() with unknown arguments");
    const List path = attribute_path(*attribute);
    const Value use = absent != nullptr && !absent->is_none() ? *absent : Value();
    for (const Value& item : items_of(v, m.budget)) all.push_back(at_path(m, item, path, use));
    return Value::generator(std::move(all));
  }
  if (a.plain.empty() || !a.plain[0].is_text()) problem("map() needs the name of a filter");
  Arguments rest = a;
  rest.plain.erase(rest.plain.begin());
  for (const Value& item : items_of(v, m.budget))
    all.push_back(m.filter(a.plain[0].bytes(), item, rest));
  return Value::generator(std::move(all));
}

Value chosen(Machine& m, const Value& v, const Arguments& a, bool by_attribute, bool keep) {
  if (!v.truthy()) return Value::generator({});
  Arguments rest = a;
  List path;
  if (by_attribute) {
    if (a.plain.empty()) problem("selectattr() and rejectattr() need an attribute");
    path = attribute_path(a.plain[0]);
    rest.plain.erase(rest.plain.begin());
  }
  std::string test;
  if (!rest.plain.empty()) {
    if (!rest.plain[0].is_text()) problem("expected the name of a test");
    test = rest.plain[0].bytes();
    rest.plain.erase(rest.plain.begin());
  }
  List all;
  for (const Value& item : items_of(v, m.budget)) {
    const Value tested = by_attribute ? at_path(m, item, path, {}) : item;
    if ((test.empty() ? tested.truthy() : m.test(test, tested, rest)) == keep) all.push_back(item);
  }
  return Value::generator(std::move(all));
}

Value select(Machine& m, const Value& v, const Arguments& a) {
  return chosen(m, v, a, false, true);
}
Value reject(Machine& m, const Value& v, const Arguments& a) {
  return chosen(m, v, a, false, false);
}
Value selectattr(Machine& m, const Value& v, const Arguments& a) {
  return chosen(m, v, a, true, true);
}
Value rejectattr(Machine& m, const Value& v, const Arguments& a) {
  return chosen(m, v, a, true, false);
}

}  // namespace

std::span<const Filter> list_filters() {
  static const std::vector<Filter> all = {
      {"length", {}, 0, length},
      {"count", {}, 0, length},
      {"list", {}, 0, list},
      {"items", {}, 0, items},
      {"join", {"d", "attribute"}, 0, join},
      {"default", {"default_value", "boolean"}, 0, fallback},
      {"d", {"default_value", "boolean"}, 0, fallback},
      {"first", {}, 0, first},
      {"last", {}, 0, last},
      {"reverse", {}, 0, reverse},
      {"sort", {"reverse", "case_sensitive", "attribute"}, 0, sort},
      {"dictsort", {"case_sensitive", "by", "reverse"}, 0, dictsort},
      {"unique", {"case_sensitive", "attribute"}, 0, unique},
      {"min", {"case_sensitive", "attribute"}, 0, smallest},
      {"max", {"case_sensitive", "attribute"}, 0, largest},
      {"sum", {"attribute", "start"}, 0, sum},
      {"map", {}, 0, nullptr, map},
      {"select", {}, 0, nullptr, select},
      {"reject", {}, 0, nullptr, reject},
      {"selectattr", {}, 0, nullptr, selectattr},
      {"rejectattr", {}, 0, nullptr, rejectattr}};
  return all;
}

}  // namespace plait::jinja
