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

}  // namespace plait::jinja
