#include "plait/io/json.h"

#include <set>

#include "plait/base/error.h"

namespace plait {

namespace {

using nlohmann::json;

// Walks the text without building anything. (The library's own parser callbacks take quadratic
// time in the number of nested objects.)
class Checker : public nlohmann::json_sax<json> {
 public:
  Checker(const std::string& source, int max_depth, size_t max_members)
      : source_(source), max_depth_(max_depth), max_members_(max_members) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    auto& names = names_.back();
    if (!names.insert(name).second)
      fail("{}: name '{}' stands twice in one JSON object", source_, name);
    if (names.size() > max_members_)
      fail("{}: more than {} names in one JSON object", source_, max_members_);
    return true;
  }

  bool parse_error(size_t, const std::string&, const json::exception& e) override {
    fail("{}: not JSON: {}", source_, e.what());
  }

 private:
  bool open() {
    if (names_.size() >= static_cast<size_t>(max_depth_))
      fail("{}: JSON nested more than {} deep", source_, max_depth_);
    names_.emplace_back();
    return true;
  }
  bool close() {
    names_.pop_back();
    return true;
  }

  const std::string& source_;
  int max_depth_;
  size_t max_members_;
  std::vector<std::set<std::string>> names_;  // of each object (or array) that is open
};

}  // namespace

namespace {
void check_json(std::string_view text, const std::string& source, int max_depth,
                size_t max_members) {
  // The parser takes a zero byte for the end of the text and would ignore what follows.
  if (text.find('\0') != std::string_view::npos) fail("{}: not JSON: zero byte", source);
  Checker checker(source, max_depth, max_members);
  json::sax_parse(text.begin(), text.end(), &checker);
}
}  // namespace

json parse_json(std::string_view text, const std::string& source, int max_depth,
                size_t max_members) {
  check_json(text, source, max_depth, max_members);
  return json::parse(text.begin(), text.end());
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& source,
                                          int max_depth, size_t max_members) {
  check_json(text, source, max_depth, max_members);
  return nlohmann::ordered_json::parse(text.begin(), text.end());
}

}  // namespace plait
