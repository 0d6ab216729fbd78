// What a template may call by name: filters, tests, functions, methods. Known while parsing, so
// that anything else is refused by its place.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "plait/tokens/jinja/value.h"

namespace plait::jinja {

// The arguments of one call.
struct Arguments {
  List plain;
  std::vector<std::pair<std::string, Value>> named;

  // In the order of `names`, which are the parameters: undefined where not given. The first
  // `required` must be given; what fits no parameter is a Problem. `what` opens its message.
  List bind(std::string_view what, std::span<const std::string_view> names, size_t required) const;
};

// What filters, tests and methods need from who runs them.
struct Machine {
  Budget& budget;
  // Apply a filter or a test that a template names by a text: map('upper').
  std::function<Value(std::string_view name, const Value&, const Arguments&)> filter;
  std::function<bool(std::string_view name, const Value&, const Arguments&)> test;
};

// The parameters behind the value itself; empty names end the list.
struct Filter {
  std::string_view name;
  std::vector<std::string_view> parameters;
  size_t required = 0;
  Value (*run)(Machine&, const Value& v, const List& arguments) = nullptr;
  Value (*run_free)(Machine&, const Value& v, const Arguments&) = nullptr;  // any arguments
};
struct Test {
  std::string_view name;
  size_t arguments = 0;
  bool (*run)(Machine&, const Value& v, const List& arguments) = nullptr;
};
// Methods of all kinds of values share this form.
struct Method {
  std::string_view name;
  std::vector<std::string_view> parameters;
  size_t required = 0;
  Value (*run)(Machine&, const Value& self, const List& arguments) = nullptr;
  Value (*run_free)(Machine&, const Value& self, const Arguments&) = nullptr;
};

// Each null: no such name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
const Method* find_text_method(std::string_view name);
const Method* find_sequence_method(std::string_view name);
const Method* find_dict_method(std::string_view name);
bool is_method(std::string_view name);  // of any kind of value, or of `loop`
// Methods of Python's lists and dicts that change them: templates name them in branches that are
// never taken, so they are refused only when they are used, as transformers does.
bool is_change(std::string_view name);

Value run_filter(Machine& machine, const Filter& f, const Value& v, const Arguments& a);
bool run_test(Machine& machine, const Test& t, const Value& v, const Arguments& a);
Value run_method(Machine& machine, const Method& m, const Value& self, const Arguments& a);

// The tables, each beside its functions.
std::span<const Filter> text_filters();
std::span<const Filter> list_filters();

// value.name and value[key] as Jinja's sandbox does them: methods and data, nothing else.
Value attribute_of(const Value& v, const std::string& name, Budget& budget);
Value item_of(const Value& v, const Value& key, Budget& budget);
// v[first:last:step]; undefined or None: not given.
Value slice_of(const Value& v, const Value& first, const Value& last, const Value& step,
               Budget& budget);

// strftime's format of a moment of UTC, in seconds since 1970.
std::string time_text(int64_t seconds, const std::string& format);
// "%s of %d" % (...), and "{} of {}".format(...).
std::string percent_text(const std::string& format, const Value& values, Budget& budget);
std::string format_text(const std::string& format, const Arguments& a, Budget& budget);

}  // namespace plait::jinja
