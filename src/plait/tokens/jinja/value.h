// Values of a chat template, with the semantics of the Python objects that Jinja would see.
//
//   Value v = Value::list({Value::integer(1), Value::text("two")});
//   v.truthy();  repr(v, budget);   // "[1, 'two']"
//
// Values are data: immutable, shared by count, never cyclic, nested at most kMaxNesting deep (so
// that walking and freeing them needs a bounded stack). A namespace alone can change; it and loop
// objects may be named and passed on, but not put into containers.
//
// What goes wrong below the interpreter is a Problem; the interpreter adds the position.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace plait::jinja {

constexpr int kMaxNesting = 100;

struct Problem {
  std::string message;
};

template <class... Args>
[[noreturn]] void problem(fmt::format_string<Args...> format, Args&&... args) {
  throw Problem{fmt::format(format, std::forward<Args>(args)...)};
}

// What a rendering may still do. Work on texts costs by their size.
class Budget {
 public:
  Budget(int64_t steps, int64_t text_bytes) : all_(steps), steps_(steps), limit_(text_bytes) {}
  void spend(int64_t steps);
  void limit(size_t bytes) const;               // no text may be longer
  void text(size_t bytes);                      // a text of that size is made or read
  void search(size_t haystack, size_t needle);  // the worst case of a plain search

 private:
  int64_t all_, steps_, limit_;
};

class Value;
using List = std::vector<Value>;
class Dict;
struct Space;
struct Loop;
struct Macro;
class Scope;

struct Text {
  std::string bytes;
  bool markup = false;  // what `safe` gives
  bool ascii = true;
};

struct Sequence {
  enum class Kind : uint8_t { list, tuple, range, view };
  Kind kind = Kind::list;
  std::string name;             // of a view: dict_keys, dict_values, dict_items
  List items;                   // of a range as well
  int64_t first = 0, last = 0;  // of a range, with `step`: as written
  int64_t step = 1;
  int depth = 1;
};

// The result of map, select and the like: can be gone through once.
struct Generator {
  List items;
  size_t next = 0;
  int depth = 1;
};

struct Function;

class Value {
 public:
  enum class Kind : uint8_t {
    undefined,
    none,
    boolean,
    integer,
    real,
    text,
    sequence,
    dict,
    generator,
    space,
    loop,
    function
  };

  Value() = default;  // undefined
  static Value undefined(std::string why);
  static Value none() { return Value(Data(None{})); }
  static Value boolean(bool b) { return Value(Data(b)); }
  static Value integer(int64_t i) { return Value(Data(i)); }
  static Value real(double d) { return Value(Data(d)); }
  static Value text(std::string bytes, bool markup = false);
  static Value list(List items) { return sequence(Sequence::Kind::list, std::move(items)); }
  static Value tuple(List items) { return sequence(Sequence::Kind::tuple, std::move(items)); }
  static Value view(std::string name, List items);
  static Value range(int64_t first, int64_t last, int64_t step, Budget& budget);
  static Value dict(Dict dict);
  static Value generator(List items);
  static Value space(std::shared_ptr<Space> s) { return Value(Data(std::move(s))); }
  static Value loop(std::shared_ptr<Loop> l) { return Value(Data(std::move(l))); }
  static Value function(Function f);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind k) const { return kind() == k; }
  bool is_undefined() const { return is(Kind::undefined); }
  bool is_none() const { return is(Kind::none); }
  bool is_text() const { return is(Kind::text); }
  bool is_dict() const { return is(Kind::dict); }
  bool is_whole() const { return is(Kind::integer) || is(Kind::boolean); }  // Python's int
  bool is_number() const { return is_whole() || is(Kind::real); }
  bool is_sequence(Sequence::Kind k) const { return is(Kind::sequence) && sequence().kind == k; }

  // Each demands its kind.
  bool as_boolean() const { return std::get<bool>(data_); }
  int64_t whole() const;
  double number() const;
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const std::string& bytes() const { return text().bytes; }
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Generator& generator() const { return *std::get<std::shared_ptr<Generator>>(data_); }
  Space& space() const { return *std::get<std::shared_ptr<Space>>(data_); }
  Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(data_); }
  const Function& function() const { return *std::get<std::shared_ptr<const Function>>(data_); }
  // Why an undefined value is undefined; throws it.
  [[noreturn]] void refuse_undefined() const;

  bool truthy() const;
  int depth() const;              // of nested containers; 0: none
  std::string type_name() const;  // Python's
  const void* identity() const;   // of shared data; null for plain kinds

 private:
  struct None {};
  using Why = std::shared_ptr<const std::string>;
  using Data = std::variant<Why, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                            std::shared_ptr<Generator>, std::shared_ptr<Space>,
                            std::shared_ptr<Loop>, std::shared_ptr<const Function>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  static Value sequence(Sequence::Kind kind, List items);
  Data data_;
};

// In the order of insertion, as Python's.
class Dict {
 public:
  void set(const Value& key, Value value, Budget& budget);
  const Value* find(const Value& key, Budget& budget) const;  // null: no such key
  const Value* find(std::string_view key) const;
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

 private:
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string, size_t> index_;  // by the text of the key
  int depth_ = 1;
};

struct Space {
  std::map<std::string, Value, std::less<>> attributes;
};

struct Loop {
  List items;
  size_t at = 0;
  int depth = 1;
  Value changed;  // what loop.changed(...) saw last
  bool has_changed = false;
};

// A function of the language, a method bound to a value, or a macro.
struct Function {
  std::string name;
  bool method = false;
  Value self;                    // of a method
  const Macro* macro = nullptr;  // with the scope that it was defined in
  Scope* scope = nullptr;
};

bool equal(const Value& a, const Value& b, Budget& budget);
// Negative, zero, positive; a Problem where Python has no order.
int compare(const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);
// What iterating gives: characters of a text, keys of a dict; uses up a generator.
List items_of(const Value& value, Budget& budget);
bool is_iterable(const Value& value);
// len(); a Problem where Python has none.
int64_t length_of(const Value& value);

}  // namespace plait::jinja
