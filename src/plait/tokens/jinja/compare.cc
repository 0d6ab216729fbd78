#include <algorithm>

#include "plait/tokens/jinja/unicode.h"
#include "plait/tokens/jinja/value.h"

namespace plait::jinja {

namespace {

bool equal_items(const List& a, const List& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!equal(a[i], b[i], budget)) return false;
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key, budget);
    if (other == nullptr || !equal(value, *other, budget)) return false;
  }
  return true;
}

template <class T>
int sign(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
    return a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::undefined:
    case Value::Kind::none:
      return true;
    case Value::Kind::text:
      budget.text(std::min(a.bytes().size(), b.bytes().size()));
      return a.bytes() == b.bytes();
    case Value::Kind::sequence:
      if (a.sequence().kind != b.sequence().kind) return false;
      if (a.sequence().kind == Sequence::Kind::view) {
        if (a.sequence().name == "dict_values") return a.identity() == b.identity();
        if (a.sequence().items.size() != b.sequence().items.size()) return false;
        for (const Value& v : a.sequence().items)  // as sets
          if (!contains(b, v, budget)) return false;
        return true;
      }
      return equal_items(a.sequence().items, b.sequence().items, budget);
    case Value::Kind::dict:
      return equal_dicts(a.dict(), b.dict(), budget);
    default:
      return a.identity() == b.identity();
  }
}

int compare(const Value& a, const Value& b, Budget& budget) {
  budget.spend(1);
  if (a.is_undefined()) a.refuse_undefined();
  if (b.is_undefined()) b.refuse_undefined();
  if (a.is_whole() && b.is_whole()) return sign(a.whole(), b.whole());
  if (a.is_number() && b.is_number()) return sign(a.number(), b.number());
  if (a.is_text() && b.is_text()) {
    budget.text(std::min(a.bytes().size(), b.bytes().size()));
    return sign(std::string_view(a.bytes()), std::string_view(b.bytes()));
  }
  const auto ordered = [](const Value& v) {
    return v.is_sequence(Sequence::Kind::list) || v.is_sequence(Sequence::Kind::tuple);
  };
  if (!ordered(a) || !ordered(b) || a.sequence().kind != b.sequence().kind)
    problem("{} and {} have no order", a.type_name(), b.type_name());
  const List &x = a.sequence().items, &y = b.sequence().items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (!equal(x[i], y[i], budget)) return compare(x[i], y[i], budget);
  return sign(x.size(), y.size());
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_text()) {
    if (item.is_undefined()) item.refuse_undefined();
    if (!item.is_text()) problem("'in' a str needs a str on its left, not {}", item.type_name());
    budget.search(container.bytes().size(), item.bytes().size());
    return container.bytes().find(item.bytes()) != std::string::npos;
  }
  if (container.is_dict()) return container.dict().find(item, budget) != nullptr;
  if (!is_iterable(container))
    problem("'in' needs something to look in, not {}", container.type_name());
  for (const Value& v : items_of(container, budget))
    if (equal(v, item, budget)) return true;
  return false;
}

bool is_iterable(const Value& v) {
  switch (v.kind()) {
    case Value::Kind::undefined:
    case Value::Kind::text:
    case Value::Kind::sequence:
    case Value::Kind::dict:
    case Value::Kind::generator:
      return true;
    default:
      return false;
  }
}

List items_of(const Value& v, Budget& budget) {
  List all;
  switch (v.kind()) {
    case Value::Kind::undefined:
      break;
    case Value::Kind::text:
      budget.text(v.bytes().size());
      budget.spend(static_cast<int64_t>(v.bytes().size()));
      for (std::string& c : split_characters(v.bytes())) all.push_back(Value::text(std::move(c)));
      break;
    case Value::Kind::sequence:
      all = v.sequence().items;
      break;
    case Value::Kind::dict:
      for (const auto& entry : v.dict().entries()) all.push_back(entry.first);
      break;
    case Value::Kind::generator: {
      Generator& g = v.generator();
      all.assign(g.items.begin() + static_cast<int64_t>(g.next), g.items.end());
      g.next = g.items.size();
      break;
    }
    default:
      problem("a value of type {} cannot be gone through", v.type_name());
  }
  budget.spend(static_cast<int64_t>(all.size()));
  return all;
}

int64_t length_of(const Value& v) {
  switch (v.kind()) {
    case Value::Kind::undefined:
      return 0;
    case Value::Kind::text:
      return v.text().ascii ? static_cast<int64_t>(v.bytes().size()) : count_characters(v.bytes());
    case Value::Kind::sequence:
      return static_cast<int64_t>(v.sequence().items.size());
    case Value::Kind::dict:
      return static_cast<int64_t>(v.dict().size());
    case Value::Kind::loop:
      return static_cast<int64_t>(v.loop().items.size());
    default:
      problem("a value of type {} has no length", v.type_name());
  }
}

}  // namespace plait::jinja
