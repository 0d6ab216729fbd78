// Strings by their bytes: which of them open a text.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace plait {

class Trie {
 public:
  void add(std::string_view key, int32_t value);  // replaces; the key must not be empty

  // Calls visit(bytes, value) for every key that `text` starts with, shortest first.
  template <class Visit>
  void each_prefix(std::string_view text, Visit&& visit) const {
    if (text.empty()) return;
    int32_t node = roots_[static_cast<unsigned char>(text[0])];
    for (size_t i = 1; node >= 0; ++i) {
      if (values_[static_cast<size_t>(node)] >= 0) visit(i, values_[static_cast<size_t>(node)]);
      if (i == text.size()) return;
      node = child(node, text[i]);
    }
  }

 private:
  static constexpr int32_t kNone = -1;
  int32_t child(int32_t node, char byte) const {
    const auto found =
        children_.find(static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(byte));
    return found == children_.end() ? kNone : found->second;
  }
  int32_t new_node() {
    values_.push_back(kNone);
    return static_cast<int32_t>(values_.size()) - 1;
  }

  std::vector<int32_t> roots_ = std::vector<int32_t>(256, kNone);
  std::vector<int32_t> values_;  // by node; kNone: no key ends there
  std::unordered_map<uint64_t, int32_t> children_;
};

inline void Trie::add(std::string_view key, int32_t value) {
  int32_t node = roots_[static_cast<unsigned char>(key[0])];
  if (node < 0) node = roots_[static_cast<unsigned char>(key[0])] = new_node();
  for (const char byte : key.substr(1)) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = new_node();
      children_[static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(byte)] = next;
    }
    node = next;
  }
  values_[static_cast<size_t>(node)] = value;
}

}  // namespace plait
