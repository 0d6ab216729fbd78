#include "plait/data/pack.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "plait/base/error.h"

namespace plait {

namespace {

constexpr size_t kRecentEpochs = 3;
enum Purpose : uint32_t { kUnits = 1, kSlots, kOffset, kEqualLengths };

template <class T>
const T& at(const std::vector<T>& v, int64_t i) {
  return v[static_cast<size_t>(i)];
}

}  // namespace

PackMode parse_pack_mode(const std::string& name) {
  if (name == "packed") return PackMode::packed;
  if (name == "whole") return PackMode::whole;
  if (name == "padded") return PackMode::padded;
  fail("unknown packing '{}'; known are auto, packed, whole, padded", name);
}

std::string_view pack_mode_name(PackMode mode) {
  switch (mode) {
    case PackMode::packed:
      return "packed";
    case PackMode::whole:
      return "whole";
    default:
      return "padded";
  }
}

Packing::Packing(std::vector<PackUnit> units, PackMode mode, int64_t slot_tokens, bool paired,
                 std::optional<PackOrder> order)
    : units_(std::move(units)),
      packed_(mode == PackMode::packed && !paired),
      slot_tokens_(slot_tokens),
      runs_per_item_(paired ? 2 : 1),
      order_(order) {
  for (const PackUnit& u : units_) tokens_ += u.end - u.begin;
  if (packed_) {
    slots_ = tokens_ / slot_tokens + (tokens_ % slot_tokens > 0 ? 1 : 0);
    return;
  }
  make_items();
  if (mode == PackMode::padded || !order_)
    in_turn(mode != PackMode::padded);
  else
    best_fit();
  slots_ = static_cast<int64_t>(bins_.size()) - 1;
}

ShuffleKey Packing::key(int64_t epoch, uint32_t purpose) const {
  return {order_->seed, epoch, order_->source, purpose};
}

int64_t Packing::item_tokens(int64_t item) const {
  int64_t n = 0;
  for (int64_t i = item * runs_per_item_; i < (item + 1) * runs_per_item_; ++i)
    n += at(runs_, i).tokens();
  return n;
}

void Packing::make_items() {
  for (const PackUnit& u : units_)
    for (int64_t begin = u.begin; begin < u.end;) {
      const int64_t end = runs_per_item_ == 2 ? u.end : std::min(u.end, begin + slot_tokens_);
      runs_.push_back({u.document, begin, end, u.end});
      begin = end;
    }
  const auto n = static_cast<int64_t>(runs_.size()) / runs_per_item_;
  PLAIT_CHECK(n * runs_per_item_ == static_cast<int64_t>(runs_.size()), "half a pair");
  for (int64_t i = 0; i < n; ++i)
    PLAIT_CHECK(item_tokens(i) <= slot_tokens_, "pair {} does not fit into a slot", i);
}

void Packing::in_turn(bool share_slots) {
  const auto n = static_cast<int64_t>(runs_.size()) / runs_per_item_;
  int64_t used = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t length = item_tokens(i);
    if (i > 0 && (!share_slots || used + length > slot_tokens_)) {
      bins_.push_back(i);
      used = 0;
    }
    used += length;
    bin_items_.push_back(i);
  }
  if (n > 0) bins_.push_back(n);
}

void Packing::best_fit() {
  const auto n = static_cast<int64_t>(runs_.size()) / runs_per_item_;
  std::vector<int64_t> lengths, sorted(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) lengths.push_back(item_tokens(i));
  std::iota(sorted.begin(), sorted.end(), int64_t{0});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](int64_t a, int64_t b) { return at(lengths, a) > at(lengths, b); });
  std::vector<Stretch> runs;
  for (const int64_t item : sorted)
    for (int64_t i = 0; i < runs_per_item_; ++i)
      runs.push_back(at(runs_, item * runs_per_item_ + i));
  runs_ = std::move(runs);

  // Slots by the room that they have left; of several with equal room the one opened last.
  std::vector<std::vector<int64_t>> with_room(static_cast<size_t>(slot_tokens_));
  std::set<int64_t> rooms;
  std::vector<int64_t> bin_of(static_cast<size_t>(n)), counts;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t length = at(lengths, at(sorted, i));
    const auto room = rooms.lower_bound(length);
    auto bin = static_cast<int64_t>(counts.size());
    int64_t left = slot_tokens_ - length;
    if (room == rooms.end()) {
      counts.push_back(0);
    } else {
      auto& slots = with_room[static_cast<size_t>(*room)];
      bin = slots.back();
      slots.pop_back();
      left = *room - length;
      if (slots.empty()) rooms.erase(room);
    }
    bin_of[static_cast<size_t>(i)] = bin;
    ++counts[static_cast<size_t>(bin)];
    if (left == 0) continue;
    with_room[static_cast<size_t>(left)].push_back(bin);
    rooms.insert(left);
  }
  for (const int64_t count : counts) bins_.push_back(bins_.back() + count);
  std::vector<int64_t> next(bins_.begin(), bins_.end() - 1);
  bin_items_.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    bin_items_[static_cast<size_t>(next[static_cast<size_t>(at(bin_of, i))]++)] = i;
}

std::shared_ptr<const Packing::Epoch> Packing::epoch(int64_t number) const {
  const std::lock_guard lock(mutex_);
  for (const auto& e : recent_)
    if (e->number == number) return e;
  auto e = std::make_shared<Epoch>();
  e->number = number;
  const auto n = static_cast<int64_t>(packed_ ? units_.size() : runs_.size()) / runs_per_item_;
  if (packed_) {
    e->items = order_ ? shuffled(n, key(number, kUnits)) : std::vector<int64_t>();
    e->offset = order_ && tokens_ > slot_tokens_
                    ? draw_below(std::min(slot_tokens_, tokens_), key(number, kOffset), 0)
                    : 0;
    e->starts.push_back(0);
    for (int64_t i = 0; i < n; ++i) {
      const PackUnit& u = at(units_, order_ ? at(e->items, i) : i);
      e->starts.push_back(e->starts.back() + u.end - u.begin);
    }
  } else if (order_) {
    e->items.resize(static_cast<size_t>(n));
    for (int64_t begin = 0; begin < n;) {  // items of equal length lie side by side
      int64_t end = begin + 1;
      while (end < n && item_tokens(end) == item_tokens(begin)) ++end;
      ShuffleKey k = key(number, kEqualLengths);
      k.seed ^= static_cast<uint64_t>(begin) << 20;
      const std::vector<int64_t> order = shuffled(end - begin, k);
      for (int64_t i = begin; i < end; ++i)
        e->items[static_cast<size_t>(i)] = begin + at(order, i - begin);
      begin = end;
    }
  }
  if (order_) e->slots = shuffled(slots_, key(number, kSlots));
  recent_.insert(recent_.begin(), e);
  if (recent_.size() > kRecentEpochs) recent_.pop_back();
  return e;
}

std::vector<Stretch> Packing::slot(int64_t number, int64_t index, int64_t* in_order) const {
  PLAIT_CHECK(index >= 0 && index < slots_, "slot {} of {}", index, slots_);
  const std::shared_ptr<const Epoch> e = epoch(number);
  const int64_t slot = e->slots.empty() ? index : at(e->slots, index);
  if (in_order != nullptr) *in_order = slot;
  return packed_ ? stream_slot(*e, slot) : bin_slot(*e, slot);
}

int64_t Packing::split_units(int64_t epoch) const {
  std::vector<int64_t> cut;  // documents that go on after a slot's end
  for (int64_t i = 0; i < slots_; ++i)
    for (const Stretch& run : slot(epoch, i))
      if (run.end < run.unit_end) cut.push_back(run.document);
  std::sort(cut.begin(), cut.end());
  return std::unique(cut.begin(), cut.end()) - cut.begin();
}

std::vector<Stretch> Packing::stream_slot(const Epoch& e, int64_t index) const {
  std::vector<Stretch> runs;
  const int64_t first = e.offset + index * slot_tokens_;
  const int64_t last = std::min(first + slot_tokens_, e.offset + tokens_);
  for (int64_t position = first; position < last;) {
    const int64_t wrapped = position % tokens_;
    const auto next = std::upper_bound(e.starts.begin(), e.starts.end(), wrapped);
    const auto place = static_cast<int64_t>(next - e.starts.begin()) - 1;
    const PackUnit& u = at(units_, e.items.empty() ? place : at(e.items, place));
    const int64_t begin = u.begin + wrapped - at(e.starts, place);
    const int64_t n = std::min(u.end - begin, last - position);
    runs.push_back({u.document, begin, begin + n, u.end});
    position += n;
  }
  return runs;
}

std::vector<Stretch> Packing::bin_slot(const Epoch& e, int64_t index) const {
  std::vector<Stretch> runs;
  for (int64_t i = at(bins_, index); i < at(bins_, index + 1); ++i) {
    const int64_t item = e.items.empty() ? at(bin_items_, i) : at(e.items, at(bin_items_, i));
    for (int64_t r = item * runs_per_item_; r < (item + 1) * runs_per_item_; ++r)
      runs.push_back(at(runs_, r));
  }
  return runs;
}

}  // namespace plait
