#include "plait/io/json.h"

#include <set>

#include "plait/base/error.h"

namespace plait {

nlohmann::json parse_json(std::string_view text, const std::string& source, int max_depth,
                          size_t max_members) {
  using nlohmann::json;
  // The parser takes a zero byte for the end of the text and would ignore what follows.
  if (text.find('\0') != std::string_view::npos) fail("{}: not JSON: zero byte", source);
  std::vector<std::set<std::string>> names;  // of each object that is open
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= max_depth)
      fail("{}: JSON nested more than {} deep", source, max_depth);
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key) {
      const std::string& name = parsed.get_ref<const std::string&>();
      if (!names.back().insert(name).second)
        fail("{}: name '{}' stands twice in one JSON object", source, name);
      if (names.back().size() > max_members)
        fail("{}: more than {} names in one JSON object", source, max_members);
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& e) {
    fail("{}: not JSON: {}", source, e.what());
  }
}

}  // namespace plait
