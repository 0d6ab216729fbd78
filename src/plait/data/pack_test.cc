#include "plait/data/pack.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "plait/base/rng.h"

namespace plait {
namespace {

// Documents of the lengths, end to end.
std::vector<PackUnit> units_of(const std::vector<int64_t>& lengths) {
  std::vector<PackUnit> units;
  int64_t at = 0;
  for (const int64_t n : lengths) {
    units.push_back({static_cast<int64_t>(units.size()), at, at + n});
    at += n;
  }
  return units;
}

std::vector<int64_t> random_lengths(int64_t n, int64_t most, uint64_t seed) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < n; ++i)
    lengths.push_back(
        1 + static_cast<int64_t>(random_bits(seed, Stream::test, static_cast<uint64_t>(i)) %
                                 static_cast<uint64_t>(most)));
  return lengths;
}

int64_t tokens_in(const std::vector<Stretch>& runs) {
  int64_t n = 0;
  for (const Stretch& r : runs) n += r.tokens();
  return n;
}

// Every token of every unit once, no slot too full, every run inside its unit.
void expect_exact_cover(const Packing& packing, int64_t epoch, int64_t slot_tokens) {
  std::map<int64_t, int> seen;
  for (int64_t s = 0; s < packing.slots(); ++s) {
    const std::vector<Stretch> runs = packing.slot(epoch, s);
    ASSERT_FALSE(runs.empty());
    ASSERT_LE(tokens_in(runs), slot_tokens);
    for (const Stretch& r : runs) {
      const PackUnit& u = packing.units()[static_cast<size_t>(r.document)];
      ASSERT_EQ(r.document, u.document);
      ASSERT_TRUE(u.begin <= r.begin && r.begin < r.end && r.end <= u.end);
      ASSERT_EQ(r.unit_end, u.end);
      for (int64_t t = r.begin; t < r.end; ++t) ++seen[t];
    }
  }
  ASSERT_EQ(static_cast<int64_t>(seen.size()), packing.tokens());
  for (const auto& [token, times] : seen) ASSERT_EQ(times, 1) << token;
}

TEST(Packing, EveryEpochHoldsEveryTokenOnce) {
  for (const PackMode mode : {PackMode::packed, PackMode::whole, PackMode::padded})
    for (const bool shuffle : {true, false})
      for (const int64_t slot : {1, 2, 7, 16, 64, 1000}) {
        const std::optional<PackOrder> order =
            shuffle ? std::optional(PackOrder{3, 1}) : std::nullopt;
        for (const auto& lengths : {random_lengths(57, 40, 1), {5}, {100}, {1, 1, 1}, {16, 16}}) {
          const Packing packing(units_of(lengths), mode, slot, false, order);
          for (const int64_t epoch : {0, 1, 17}) expect_exact_cover(packing, epoch, slot);
        }
      }
}

TEST(Packing, PackedWastesLessThanASlotAndCutsElsewhereEachEpoch) {
  const Packing packing(units_of(random_lengths(200, 50, 2)), PackMode::packed, 32, false,
                        PackOrder{9, 0});
  EXPECT_EQ(packing.slots(), (packing.tokens() + 31) / 32);
  std::set<std::vector<int64_t>> firsts;
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    std::vector<int64_t> first;
    for (int64_t s = 0; s < packing.slots(); ++s)
      first.push_back(packing.slot(epoch, s).front().begin);
    std::sort(first.begin(), first.end());
    firsts.insert(first);
  }
  EXPECT_EQ(firsts.size(), 6u);
}

TEST(Packing, OneLongDocumentIsReadInShuffledOrderFromAnotherOffset) {
  const Packing packing(units_of({1000}), PackMode::packed, 10, false, PackOrder{1, 0});
  ASSERT_EQ(packing.slots(), 100);
  int64_t neighbours = 0;
  for (int64_t s = 1; s < 100; ++s)
    neighbours += packing.slot(0, s).front().begin == packing.slot(0, s - 1).back().end ? 1 : 0;
  EXPECT_LT(neighbours, 8);
  EXPECT_NE(packing.slot(0, 5).front().begin % 10, packing.slot(1, 5).front().begin % 10);
}

TEST(Packing, WholeCutsOnlyWhatIsLongerThanASlot) {
  const std::vector<int64_t> lengths = random_lengths(300, 40, 4);
  const Packing packing(units_of(lengths), PackMode::whole, 32, false, PackOrder{9, 0});
  std::map<int64_t, int> parts;
  for (int64_t s = 0; s < packing.slots(); ++s)
    for (const Stretch& r : packing.slot(2, s)) ++parts[r.document];
  for (const auto& [document, n] : parts)
    EXPECT_EQ(n, lengths[static_cast<size_t>(document)] > 32 ? 2 : 1);
  const auto least = (packing.tokens() + 31) / 32;
  EXPECT_LE(packing.slots(), least + least / 20);  // best fit of many small documents is tight
}

TEST(Packing, WholeMixesOtherDocumentsInOtherEpochs) {
  const Packing packing(units_of(std::vector<int64_t>(60, 8)), PackMode::whole, 32, false,
                        PackOrder{9, 0});
  const auto together = [&](int64_t epoch) {
    std::set<std::set<int64_t>> sets;
    for (int64_t s = 0; s < packing.slots(); ++s) {
      std::set<int64_t> documents;
      for (const Stretch& r : packing.slot(epoch, s)) documents.insert(r.document);
      sets.insert(documents);
    }
    return sets;
  };
  EXPECT_EQ(packing.slots(), 15);
  EXPECT_NE(together(0), together(1));
}

TEST(Packing, PairsStayTogetherAndWhole) {
  std::vector<int64_t> lengths = random_lengths(80, 16, 5);
  for (const PackMode mode : {PackMode::packed, PackMode::padded})
    for (const bool shuffle : {true, false}) {
      const Packing packing(units_of(lengths), mode, 32, true,
                            shuffle ? std::optional(PackOrder{9, 0}) : std::nullopt);
      std::set<int64_t> seen;
      for (int64_t s = 0; s < packing.slots(); ++s) {
        const std::vector<Stretch> runs = packing.slot(3, s);
        ASSERT_EQ(runs.size() % 2, 0u);
        for (size_t r = 0; r < runs.size(); r += 2) {
          EXPECT_EQ(runs[r].document % 2, 0);
          EXPECT_EQ(runs[r + 1].document, runs[r].document + 1);
          EXPECT_EQ(runs[r].tokens(), lengths[static_cast<size_t>(runs[r].document)]);
          seen.insert(runs[r].document / 2);
        }
      }
      EXPECT_EQ(seen.size(), 40u);
    }
}

TEST(Packing, InOrderKeepsTheOrder) {
  for (const PackMode mode : {PackMode::packed, PackMode::whole, PackMode::padded}) {
    const Packing packing(units_of(random_lengths(50, 40, 6)), mode, 16, false, std::nullopt);
    int64_t at = 0;
    for (int64_t s = 0; s < packing.slots(); ++s)
      for (const Stretch& r : packing.slot(0, s)) {
        EXPECT_EQ(r.begin, at);
        at = r.end;
      }
  }
}

}  // namespace
}  // namespace plait
