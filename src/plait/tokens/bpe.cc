#include "plait/tokens/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace plait {

namespace {

constexpr size_t kShort = 48;  // symbols; below it, looking at all pairs is faster than a heap

void merge_short(const MergeTable& table, std::vector<int32_t>& symbols) {
  MergeTable::Merge merges[kShort];  // merges[i]: of symbols i and i + 1
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = table.find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == MergeTable::kNone) break;
    symbols[best] = merges[best].id;
    for (size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i] = merges[i + 1];
    }
    --n;
    // merges[best] now belongs to what stood one further.
    if (best + 1 < n) merges[best] = table.find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = table.find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(n);
}

struct Candidate {
  uint32_t rank;
  uint32_t at;  // the left symbol
  int32_t left, right, id;
  bool operator<(const Candidate& o) const {  // priority_queue gives the greatest first
    return rank != o.rank ? rank > o.rank : at > o.at;
  }
};

void merge_long(const MergeTable& table, std::vector<int32_t>& symbols) {
  const auto n = static_cast<uint32_t>(symbols.size());
  constexpr int32_t kGone = -1;
  std::vector<uint32_t> next(n), previous(n);
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first one: never used
  }
  std::vector<Candidate> first;
  const auto candidate = [&](uint32_t at, auto&& take) {
    const uint32_t right = next[at];
    if (right >= n) return;
    const MergeTable::Merge m = table.find(symbols[at], symbols[right]);
    if (m.rank != MergeTable::kNone) take(Candidate{m.rank, at, symbols[at], symbols[right], m.id});
  };
  for (uint32_t i = 0; i < n; ++i) candidate(i, [&](const Candidate& c) { first.push_back(c); });
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(first));
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    const uint32_t right = next[c.at];
    if (symbols[c.at] != c.left || right >= n || symbols[right] != c.right) continue;  // outdated
    symbols[c.at] = c.id;
    symbols[right] = kGone;
    next[c.at] = next[right];
    if (next[right] < n) previous[next[right]] = c.at;
    const auto push = [&](const Candidate& fresh) { queue.push(fresh); };
    candidate(c.at, push);
    if (c.at > 0) candidate(previous[c.at], push);
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), kGone), symbols.end());
}

}  // namespace

MergeTable::MergeTable(size_t merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, 2 * merges));
  slots_.assign(slots, Slot{kFree, {}});
  mask_ = slots - 1;
  shift_ = 64 - std::bit_width(mask_);
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t i = slot(key);
  while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

void merge_symbols(const MergeTable& table, std::vector<int32_t>& symbols) {
  if (symbols.size() <= 1) return;
  if (symbols.size() <= kShort)
    merge_short(table, symbols);
  else
    merge_long(table, symbols);
}

}  // namespace plait
