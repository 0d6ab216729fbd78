// Byte-pair encoding. The symbols of a piece (its characters, or bytes) are merged two by two:
// always the pair that stands first in the list of merges, the leftmost of equal ones.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace plait {

// Which symbol two symbols make, and how early it is made.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNone;
    int32_t id = 0;
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  explicit MergeTable(size_t merges);
  void set(int32_t left, int32_t right, Merge merge);  // replaces
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = slot(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kFree) return {};
    }
  }

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot(uint64_t key) const {
    return static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> shift_) & mask_;
  }
  std::vector<Slot> slots_;
  size_t mask_;
  int shift_;
};

// Merges `symbols` in place until no pair is in the table. Time n log n for long pieces.
void merge_symbols(const MergeTable& table, std::vector<int32_t>& symbols);

}  // namespace plait
