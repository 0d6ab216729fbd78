#include <cmath>

#include "plait/tokens/jinja/interpreter.h"
#include "plait/tokens/jinja/text.h"
#include "plait/tokens/jinja/unicode.h"

namespace plait::jinja {

namespace {

[[noreturn]] void no_operator(std::string_view sign, const Value& a, const Value& b) {
  if (a.is_undefined()) a.refuse_undefined();
  if (b.is_undefined()) b.refuse_undefined();
  problem("no '{}' between {} and {}", sign, a.type_name(), b.type_name());
}

[[noreturn]] void too_large() { problem("the result needs more than 64 bits"); }

Value checked(double d) { return Value::real(d); }

Value subtract(const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) no_operator("-", a, b);
  if (!a.is_whole() || !b.is_whole()) return checked(a.number() - b.number());
  int64_t out = 0;
  if (__builtin_sub_overflow(a.whole(), b.whole(), &out)) too_large();
  return Value::integer(out);
}

Value repeated(const Value& v, int64_t times, Budget& budget) {
  times = std::max<int64_t>(times, 0);
  const auto size =
      static_cast<int64_t>(v.is_text() ? v.bytes().size() : v.sequence().items.size());
  int64_t all = 0;
  if (__builtin_mul_overflow(size, times, &all)) too_large();
  if (size == 0) times = 0;
  if (v.is_text()) {
    budget.text(static_cast<size_t>(all));
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += v.bytes();
    return Value::text(std::move(out), v.text().markup);
  }
  budget.spend(all);
  List out;
  const List& items = v.sequence().items;
  for (int64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return v.is_sequence(Sequence::Kind::tuple) ? Value::tuple(std::move(out))
                                              : Value::list(std::move(out));
}

bool repeatable(const Value& v) {
  return v.is_text() || v.is_sequence(Sequence::Kind::list) || v.is_sequence(Sequence::Kind::tuple);
}

Value multiply(const Value& a, const Value& b, Budget& budget) {
  if (repeatable(a) && b.is_whole()) return repeated(a, b.whole(), budget);
  if (repeatable(b) && a.is_whole()) return repeated(b, a.whole(), budget);
  if (!a.is_number() || !b.is_number()) no_operator("*", a, b);
  if (!a.is_whole() || !b.is_whole()) return checked(a.number() * b.number());
  int64_t out = 0;
  if (__builtin_mul_overflow(a.whole(), b.whole(), &out)) too_large();
  return Value::integer(out);
}

Value divide(const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) no_operator("/", a, b);
  if (b.number() == 0) problem("division by zero");
  return checked(a.number() / b.number());
}

// Python's: the remainder has the sign of the divisor.
double real_remainder(double a, double b) {
  const double r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

double real_quotient(double a, double b) {
  const double quotient = (a - real_remainder(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value floor_divide(const Value& a, const Value& b, bool quotient) {
  if (!a.is_number() || !b.is_number()) no_operator(quotient ? "//" : "%", a, b);
  if (b.number() == 0) problem("division by zero");
  if (!a.is_whole() || !b.is_whole())
    return checked(quotient ? real_quotient(a.number(), b.number())
                            : real_remainder(a.number(), b.number()));
  if (b.whole() == -1) return quotient ? subtract(Value::integer(0), a) : Value::integer(0);
  int64_t q = a.whole() / b.whole(), r = a.whole() % b.whole();
  if (r != 0 && (r < 0) != (b.whole() < 0)) {
    r += b.whole();
    --q;
  }
  return Value::integer(quotient ? q : r);
}

Value power(const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) no_operator("**", a, b);
  if (!a.is_whole() || !b.is_whole() || b.whole() < 0) {
    if (a.number() == 0 && b.number() < 0) problem("zero to a negative power");
    const double d = std::pow(a.number(), b.number());
    if (std::isnan(d) && !std::isnan(a.number())) problem("a power that is no real number");
    if (std::isinf(d) && std::isfinite(a.number()) && std::isfinite(b.number())) too_large();
    return checked(d);
  }
  int64_t out = 1;
  const int64_t base = a.whole();
  if (base == 0 || base == 1) return Value::integer(b.whole() == 0 ? 1 : base);
  if (base == -1) return Value::integer(b.whole() % 2 == 0 ? 1 : -1);
  for (int64_t i = 0; i < b.whole(); ++i)
    if (__builtin_mul_overflow(out, base, &out)) too_large();
  return Value::integer(out);
}

// Where a slice of `size` items begins and ends, as Python's slice.indices.
struct Range {
  int64_t first = 0, last = 0, step = 1;
};
Range indices(const Value& first, const Value& last, const Value& step, int64_t size) {
  Range r;
  const auto given = [](const Value& v) { return !v.is_none() && !v.is_undefined(); };
  r.step = given(step) ? std::max<int64_t>(step.whole(), -INT64_MAX) : 1;
  if (r.step == 0) problem("a slice with a step of 0");
  const bool back = r.step < 0;
  const auto place = [&](const Value& v, int64_t absent) {
    if (!given(v)) return absent;
    const int64_t i = v.whole() < 0 ? v.whole() + size : v.whole();
    return std::clamp<int64_t>(i, back ? -1 : 0, back ? size - 1 : size);
  };
  r.first = place(first, back ? size - 1 : 0);
  r.last = place(last, back ? -1 : size);
  return r;
}

template <class F>
void for_each(const Range& r, F f) {
  for (int64_t i = r.first; r.step > 0 ? i < r.last : i > r.last; i += r.step) {
    f(static_cast<size_t>(i));
    if (r.step > 0 ? r.step > r.last - i : r.step < r.last - i) break;
  }
}

Value slice_text(const Value& v, const Range& r) {
  const std::string& s = v.bytes();
  std::string out;
  if (v.text().ascii) {
    for_each(r, [&](size_t i) { out += s[i]; });
  } else {
    const std::vector<std::string> characters = split_characters(s);
    for_each(r, [&](size_t i) { out += characters[i]; });
  }
  return Value::text(std::move(out), v.text().markup);
}

Value bound_method(const Value& self, std::string_view name) {
  Function f;
  f.name = std::string(name);
  f.method = true;
  f.self = self;
  return Value::function(std::move(f));
}

bool is_hashable(const Value& v, Budget& budget) {
  budget.spend(1);
  if (v.is_sequence(Sequence::Kind::tuple)) {
    for (const Value& item : v.sequence().items)
      if (!is_hashable(item, budget)) return false;
    return true;
  }
  return v.is_text() || v.is_number() || v.is_none();
}

Value forbidden(const Value& v, const std::string& name) {
  return Value::undefined(fmt::format(
      "the method '{}' of a {} is not allowed: values do not change", name, v.type_name()));
}

Value element(const Value& v, int64_t index) {
  const int64_t size = length_of(v);
  if (index < -size || index >= size)
    return Value::undefined(fmt::format("the {} has no element {}", v.type_name(), index));
  if (index < 0) index += size;
  if (!v.is_text()) return v.sequence().items[static_cast<size_t>(index)];
  if (v.text().ascii) return Value::text(std::string(1, v.bytes()[static_cast<size_t>(index)]));
  const size_t begin = offset_of(v.bytes(), index);
  size_t end = begin;
  next_character(v.bytes(), end);
  return Value::text(v.bytes().substr(begin, end - begin));
}

}  // namespace

Value add(const Value& a, const Value& b, Budget& budget) {
  if (a.is_whole() && b.is_whole()) {
    int64_t out = 0;
    if (__builtin_add_overflow(a.whole(), b.whole(), &out)) too_large();
    return Value::integer(out);
  }
  if (a.is_number() && b.is_number()) return checked(a.number() + b.number());
  if (a.is_text() && b.is_text()) {
    budget.text(a.bytes().size() + b.bytes().size());
    const bool markup = a.text().markup || b.text().markup;
    const auto part = [&](const Value& v) {
      return markup && !v.text().markup ? html_escaped(v.bytes()) : v.bytes();
    };
    std::string out = part(a) + part(b);
    budget.text(out.size());
    return Value::text(std::move(out), markup);
  }
  const auto joined = [&] {
    List all = a.sequence().items;
    all.insert(all.end(), b.sequence().items.begin(), b.sequence().items.end());
    budget.spend(static_cast<int64_t>(all.size()));
    return all;
  };
  if (a.is_sequence(Sequence::Kind::list) && b.is_sequence(Sequence::Kind::list))
    return Value::list(joined());
  if (a.is_sequence(Sequence::Kind::tuple) && b.is_sequence(Sequence::Kind::tuple))
    return Value::tuple(joined());
  no_operator("+", a, b);
}

Value apply(Operator op, const Value& a, const Value& b, Budget& budget) {
  switch (op) {
    case Operator::add:
      return add(a, b, budget);
    case Operator::subtract:
      return subtract(a, b);
    case Operator::multiply:
      return multiply(a, b, budget);
    case Operator::divide:
      return divide(a, b);
    case Operator::floor_divide:
      return floor_divide(a, b, true);
    case Operator::modulo:
      if (a.is_text()) return Value::text(percent_text(a.bytes(), b, budget));
      return floor_divide(a, b, false);
    case Operator::power:
      return power(a, b);
    case Operator::equal:
      return Value::boolean(equal(a, b, budget));
    case Operator::not_equal:
      return Value::boolean(!equal(a, b, budget));
    case Operator::less:
      return Value::boolean(compare(a, b, budget) < 0);
    case Operator::less_equal:
      return Value::boolean(compare(a, b, budget) <= 0);
    case Operator::greater:
      return Value::boolean(compare(a, b, budget) > 0);
    case Operator::greater_equal:
      return Value::boolean(compare(a, b, budget) >= 0);
    case Operator::in:
      return Value::boolean(contains(b, a, budget));
    case Operator::not_in:
      return Value::boolean(!contains(b, a, budget));
  }
  return {};
}

Value slice_of(const Value& v, const Value& first, const Value& last, const Value& step,
               Budget& budget) {
  if (v.is_undefined()) v.refuse_undefined();
  for (const Value* part : {&first, &last, &step})
    if (!part->is_none() && !part->is_whole())
      return Value::undefined("a slice by something that is no integer");
  if (!v.is_text() && (!v.is(Value::Kind::sequence) || v.is_sequence(Sequence::Kind::view)))
    return Value::undefined(fmt::format("a value of type {} has no slices", v.type_name()));
  const int64_t size = length_of(v);
  budget.spend(size / 16);
  const Range r = indices(first, last, step, size);
  if (v.is_text()) {
    budget.text(v.bytes().size());
    return slice_text(v, r);
  }
  const Sequence& s = v.sequence();
  if (s.kind == Sequence::Kind::range)
    return Value::range(s.first + r.first * s.step, s.first + r.last * s.step, s.step * r.step,
                        budget);
  List items;
  for_each(r, [&](size_t i) { items.push_back(s.items[i]); });
  budget.spend(static_cast<int64_t>(items.size()));
  return s.kind == Sequence::Kind::tuple ? Value::tuple(std::move(items))
                                         : Value::list(std::move(items));
}

Value attribute_of(const Value& v, const std::string& name, Budget& budget) {
  const Method* method = nullptr;
  switch (v.kind()) {
    case Value::Kind::undefined:
      v.refuse_undefined();
    case Value::Kind::text:
      method = find_text_method(name);
      break;
    case Value::Kind::sequence:
      if (v.is_sequence(Sequence::Kind::list) || v.is_sequence(Sequence::Kind::tuple))
        method = find_sequence_method(name);
      if (v.is_sequence(Sequence::Kind::list) && is_change(name)) return forbidden(v, name);
      break;
    case Value::Kind::dict: {
      // Methods come before keys, those that would change the dict as well.
      method = find_dict_method(name);
      if (method != nullptr) break;
      if (is_change(name)) return forbidden(v, name);
      const Value* found = v.dict().find(name);
      if (found != nullptr) return *found;
      break;
    }
    case Value::Kind::space: {
      const auto at = v.space().attributes.find(name);
      if (at != v.space().attributes.end()) return at->second;
      break;
    }
    default:
      break;
  }
  budget.spend(1);
  if (method != nullptr) return bound_method(v, name);
  return Value::undefined(fmt::format("a {} has no '{}'", v.type_name(), name));
}

Value item_of(const Value& v, const Value& key, Budget& budget) {
  if (v.is_undefined()) v.refuse_undefined();
  if (v.is_dict() && is_hashable(key, budget)) {
    const Value* found = v.dict().find(key, budget);
    if (found != nullptr) return *found;
  }
  const bool indexed =
      v.is_text() || (v.is(Value::Kind::sequence) && !v.is_sequence(Sequence::Kind::view));
  if (indexed && key.is_whole()) {
    if (v.is_text()) budget.text(v.bytes().size());
    return element(v, key.whole());
  }
  if (key.is_text()) return attribute_of(v, key.bytes(), budget);
  return Value::undefined(fmt::format("a {} has no such item", v.type_name()));
}

}  // namespace plait::jinja
