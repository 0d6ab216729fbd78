#include "plait/tokens/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "plait/tokens/jinja/python.h"
#include "plait/tokens/jinja/unicode.h"

namespace plait::jinja {

namespace {

// What may stand in a container: data, and functions, but nothing that can change.
int checked_depth(const Value& v) {
  if (v.is(Value::Kind::space) || v.is(Value::Kind::loop))
    problem("a {} cannot be put into a list, a dict or a namespace", v.type_name());
  const int depth = v.depth() + 1;
  if (depth > kMaxNesting) problem("values nested more than {} deep", kMaxNesting);
  return depth;
}

int checked_depth(const List& items) {
  int depth = 1;
  for (const Value& v : items) depth = std::max(depth, checked_depth(v));
  return depth;
}

// Equal keys have equal texts: 1, 1.0 and True are one key, "1" another.
std::string key_text(const Value& key, Budget& budget) {
  budget.spend(1);
  if (key.is_text()) {
    budget.text(key.bytes().size());
    return "s" + key.bytes();
  }
  if (key.is_none()) return "n";
  if (key.is_whole()) return "i" + std::to_string(key.whole());
  if (key.is(Value::Kind::real)) {
    const double d = key.number();
    if (d == std::floor(d) && std::abs(d) < 0x1p62) return "i" + std::to_string(int64_t(d));
    return "r" + float_text(d);
  }
  if (!key.is_sequence(Sequence::Kind::tuple))
    problem("a {} cannot be a key of a dict", key.type_name());
  std::string all = "t";
  for (const Value& v : key.sequence().items) {
    const std::string one = key_text(v, budget);
    all += std::to_string(one.size()) + ":" + one;
    budget.text(all.size());
  }
  return all;
}

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

void Budget::spend(int64_t steps) {
  steps_ -= steps;
  if (steps_ < 0) problem("the template takes more than {} steps", all_);
}

void Budget::limit(size_t bytes) const {
  if (bytes > static_cast<size_t>(limit_)) problem("a text longer than {} bytes", limit_);
}

void Budget::text(size_t bytes) {
  limit(bytes);
  spend(static_cast<int64_t>(bytes / 256));
}

void Budget::search(size_t haystack, size_t needle) {
  text(haystack);
  text(needle);
  spend(static_cast<int64_t>(haystack / 64 * (needle / 64)));
}

Value Value::undefined(std::string why) {
  return Value(Data(std::make_shared<const std::string>(std::move(why))));
}

Value Value::text(std::string bytes, bool markup) {
  auto t = std::make_shared<Text>();
  t->ascii = jinja::is_ascii(bytes);
  t->bytes = std::move(bytes);
  t->markup = markup;
  return Value(Data(std::shared_ptr<const Text>(std::move(t))));
}

Value Value::sequence(Sequence::Kind kind, List items) {
  auto s = std::make_shared<Sequence>();
  s->kind = kind;
  s->depth = checked_depth(items);
  s->items = std::move(items);
  return Value(Data(std::shared_ptr<const Sequence>(std::move(s))));
}

Value Value::view(std::string name, List items) {
  auto s = std::make_shared<Sequence>();
  s->kind = Sequence::Kind::view;
  s->name = std::move(name);
  s->depth = checked_depth(items);
  s->items = std::move(items);
  return Value(Data(std::shared_ptr<const Sequence>(std::move(s))));
}

Value Value::range(int64_t first, int64_t last, int64_t step, Budget& budget) {
  constexpr int64_t kLongest = 100'000;  // as Jinja's sandbox
  constexpr int64_t kFar = int64_t{1} << 61;
  if (step == 0) problem("range() with a step of 0");
  if (std::max({std::abs(first), std::abs(last), std::abs(step)}) > kFar)
    problem("range() with bounds that large");
  auto s = std::make_shared<Sequence>();
  s->kind = Sequence::Kind::range;
  s->first = first;
  s->last = last;
  s->step = step;
  const int64_t distance = step > 0 ? last - first : first - last;
  const int64_t stride = std::abs(step);
  const int64_t count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  if (count > kLongest) problem("range() of {} items; at most {} are allowed", count, kLongest);
  budget.spend(count);
  for (int64_t i = 0; i < count; ++i) s->items.push_back(integer(first + i * step));
  return Value(Data(std::shared_ptr<const Sequence>(std::move(s))));
}

Value Value::dict(Dict dict) { return Value(Data(std::make_shared<const Dict>(std::move(dict)))); }

Value Value::generator(List items) {
  auto g = std::make_shared<Generator>();
  g->depth = checked_depth(items);
  g->items = std::move(items);
  return Value(Data(std::move(g)));
}

Value Value::function(Function f) {
  return Value(Data(std::make_shared<const Function>(std::move(f))));
}

int64_t Value::whole() const {
  return is(Kind::boolean) ? int64_t{as_boolean()} : std::get<int64_t>(data_);
}

double Value::number() const {
  return is(Kind::real) ? std::get<double>(data_) : static_cast<double>(whole());
}

void Value::refuse_undefined() const {
  const auto& why = std::get<Why>(data_);
  throw Problem{why ? *why : std::string("the value is undefined")};
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return as_boolean();
    case Kind::integer:
      return whole() != 0;
    case Kind::real:
      return number() != 0;
    case Kind::text:
      return !bytes().empty();
    case Kind::sequence:
      return !sequence().items.empty();
    case Kind::dict:
      return dict().size() > 0;
    case Kind::loop:
      return !loop().items.empty();
    default:
      return true;
  }
}

int Value::depth() const {
  switch (kind()) {
    case Kind::sequence:
      return sequence().depth;
    case Kind::dict:
      return dict().depth();
    case Kind::generator:
      return generator().depth;
    case Kind::loop:
      return loop().depth;
    case Kind::function:
      return function().self.depth() + 1;
    default:
      return 0;
  }
}

std::string Value::type_name() const {
  switch (kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::sequence:
      switch (sequence().kind) {
        case Sequence::Kind::list:
          return "list";
        case Sequence::Kind::tuple:
          return "tuple";
        case Sequence::Kind::range:
          return "range";
        default:
          return sequence().name;
      }
    case Kind::dict:
      return "dict";
    case Kind::generator:
      return "generator";
    case Kind::space:
      return "namespace";
    case Kind::loop:
      return "loop";
    default:
      return function().macro != nullptr ? "macro" : function().method ? "method" : "function";
  }
}

const void* Value::identity() const {
  return std::visit(
      [](const auto& held) -> const void* {
        if constexpr (requires { held.get(); })
          return held.get();
        else
          return nullptr;
      },
      data_);
}

void Dict::set(const Value& key, Value value, Budget& budget) {
  depth_ = std::max({depth_, checked_depth(key), checked_depth(value)});
  const auto [at, is_new] = index_.emplace(key_text(key, budget), entries_.size());
  if (is_new)
    entries_.emplace_back(key, std::move(value));
  else
    entries_[at->second].second = std::move(value);
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  if (key.is_undefined()) return nullptr;
  const auto at = index_.find(key_text(key, budget));
  return at == index_.end() ? nullptr : &entries_[at->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto at = index_.find("s" + std::string(key));
  return at == index_.end() ? nullptr : &entries_[at->second].second;
}

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
