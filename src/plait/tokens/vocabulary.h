// Tokens by id and ids by token.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace plait {

class Vocabulary {
 public:
  // Throws Error for a token or an id that is there already, and for an id so high that most ids
  // below it could not be tokens. `where` opens the message.
  void add(std::string token, int64_t id, const std::string& where);
  void check_gaps(const std::string& where) const;  // once all are there

  int64_t size() const { return static_cast<int64_t>(by_id_.size()); }  // highest id + 1
  int64_t count() const { return static_cast<int64_t>(ids_.size()); }
  std::optional<int32_t> id(std::string_view token) const;
  const std::string* token(int64_t id) const;  // null where there is none

 private:
  std::deque<std::string> tokens_;  // stay where they are
  std::unordered_map<std::string_view, int32_t> ids_;
  std::vector<const std::string*> by_id_;
};

}  // namespace plait
