#include "plait/tokens/vocabulary.h"

#include "plait/base/error.h"

namespace plait {

namespace {

constexpr int64_t kMaxId = int64_t{1} << 24, kGaps = 100'000;

}  // namespace

void Vocabulary::add(std::string token, int64_t id, const std::string& where) {
  if (id < 0 || id >= kMaxId)
    fail("{}: token '{}' has id {}; expected 0 to {}", where, token, id, kMaxId - 1);
  if (id > 64 * (count() + 1) + 1'000'000)
    fail("{}: token '{}' has id {}, far above the {} ids read so far", where, token, id, count());
  if (ids_.contains(token))
    fail("{}: token '{}' stands twice, with ids {} and {}", where, token, ids_.at(token), id);
  if (id < size() && by_id_[static_cast<size_t>(id)] != nullptr)
    fail("{}: id {} is given twice, to '{}' and '{}'", where, id, *by_id_[static_cast<size_t>(id)],
         token);
  tokens_.push_back(std::move(token));
  ids_.emplace(tokens_.back(), static_cast<int32_t>(id));
  if (id >= size()) by_id_.resize(static_cast<size_t>(id) + 1, nullptr);
  by_id_[static_cast<size_t>(id)] = &tokens_.back();
}

void Vocabulary::check_gaps(const std::string& where) const {
  if (size() > 2 * count() + kGaps)
    fail("{}: {} tokens with ids up to {}; most ids would mean nothing", where, count(),
         size() - 1);
}

std::optional<int32_t> Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::token(int64_t id) const {
  return id < 0 || id >= size() ? nullptr : by_id_[static_cast<size_t>(id)];
}

}  // namespace plait
