// Packing: how the documents of one source fill slots of slot_tokens tokens, epoch after epoch.
//
//   const Packing packing(units, PackMode::packed, 1024, paired, order);
//   for (const Stretch& run : packing.slot(epoch, index)) ...
//
// Every epoch has the same number of slots and holds every token exactly once (pairs: of those
// units that were given). What a slot holds is a function of (order, epoch, index) alone.
//
//   packed  the epoch's documents, shuffled, end to end; cut where a slot ends, the first cut at a
//           random offset that the epoch draws. What lies before it joins the end of the epoch.
//   whole   documents longer than a slot give full slots and a rest; all that is left is placed by
//           best fit, longest first. Each epoch, documents of equal length trade places.
//   padded  the same, but nothing shares a slot.
//
// In all modes the epoch's slots are then shuffled. Without shuffling (validation): documents in
// order, whole ones by next fit.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plait/data/order.h"

namespace plait {

enum class PackMode { packed, whole, padded };
PackMode parse_pack_mode(const std::string& name);
std::string_view pack_mode_name(PackMode mode);

// Tokens [begin, end) of the store, of one document; not empty. Pairs: two units each.
struct PackUnit {
  int64_t document = 0, begin = 0, end = 0;
};

// A part of a unit. The label of token end - 1 is token `end`, unless the unit ends there.
struct Stretch {
  int64_t document = 0, begin = 0, end = 0, unit_end = 0;
  int64_t tokens() const { return end - begin; }
  bool operator==(const Stretch&) const = default;
};

// Seed and source of the shuffles; none: in order.
struct PackOrder {
  uint64_t seed = 0;
  int64_t source = 0;
};

class Packing {
 public:
  // Pairs are never cut: two units together must fit into a slot; `packed` is `whole` for them.
  Packing(std::vector<PackUnit> units, PackMode mode, int64_t slot_tokens, bool paired,
          std::optional<PackOrder> order);

  int64_t slots() const { return slots_; }  // of an epoch
  int64_t tokens() const { return tokens_; }
  const std::vector<PackUnit>& units() const { return units_; }
  int64_t split_units(int64_t epoch) const;  // that go on in another slot
  // `index` is below slots(). `in_order` gives the number of the slot before they are shuffled.
  std::vector<Stretch> slot(int64_t epoch, int64_t index, int64_t* in_order = nullptr) const;

 private:
  struct Epoch {
    int64_t number = -1;
    std::vector<int64_t> items;   // of units (packed) or items, in the order of this epoch
    std::vector<int64_t> starts;  // packed: tokens before each; one more at the end
    std::vector<int64_t> slots;   // shuffled; empty: in order
    int64_t offset = 0;           // packed: where the first slot begins
  };
  void make_items();
  void best_fit();
  void in_turn(bool share_slots);
  int64_t item_tokens(int64_t item) const;
  ShuffleKey key(int64_t epoch, uint32_t purpose) const;
  std::shared_ptr<const Epoch> epoch(int64_t number) const;
  std::vector<Stretch> stream_slot(const Epoch& epoch, int64_t index) const;
  std::vector<Stretch> bin_slot(const Epoch& epoch, int64_t index) const;

  std::vector<PackUnit> units_;
  bool packed_ = false;
  int64_t slot_tokens_ = 0, slots_ = 0, tokens_ = 0;
  int64_t runs_per_item_ = 1;
  std::optional<PackOrder> order_;
  // whole and padded: items, longest first, `runs_per_item_` runs each; slot s holds the items
  // numbered bin_items_[bins_[s]] to bin_items_[bins_[s + 1] - 1].
  std::vector<Stretch> runs_;
  std::vector<int64_t> bins_{0}, bin_items_;

  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const Epoch>> recent_;  // the newest first
};

}  // namespace plait
