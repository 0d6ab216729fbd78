#include "plait/data/split.h"

#include <algorithm>
#include <cmath>

#include "plait/base/error.h"

namespace plait {

namespace {

constexpr int64_t kFewDocuments = 40;
constexpr uint64_t kSplitSeed = 0x706c616974;  // a constant: the seed of training must not matter

bool learns(const TokenStore& store, const PackUnit& u) {
  std::vector<int32_t> ids(static_cast<size_t>(u.end - u.begin));
  std::vector<uint8_t> learn(ids.size());
  store.read(u.begin, u.end, ids.data(), learn.data());
  return std::find(learn.begin() + 1, learn.end(), 1) != learn.end();
}

// Whether the pair is kept.
bool fit_pair(const TokenStore& store, int64_t slot_tokens, bool truncate, PackUnit& a, PackUnit& b,
              UnitsReport& report) {
  const auto length = [](const PackUnit& u) { return u.end - u.begin; };
  const int64_t excess = length(a) + length(b) - slot_tokens;
  if (excess <= 0) return true;
  if (!truncate) return false;
  PackUnit &longer = length(a) >= length(b) ? a : b, &shorter = length(a) >= length(b) ? b : a;
  const int64_t first = std::min(excess, length(longer) - length(shorter));
  longer.end -= first;
  longer.end -= (excess - first + 1) / 2;
  shorter.end -= (excess - first) / 2;
  if (length(a) < 2 || length(b) < 2 || !learns(store, a) || !learns(store, b)) return false;
  ++report.truncated_pairs;
  return true;
}

Split cut_end(const std::vector<PackUnit>& units, int64_t total, double share, int64_t slot_tokens,
              const std::string& source) {
  const int64_t sample = slot_tokens + 1;
  if (total < 2 * sample)
    fail(
        "'{}' has {} tokens; needs {}: a training and a validation sample of {} tokens each; make "
        "slots shorter, or hold nothing out",
        source, total, 2 * sample, slot_tokens);
  const auto wanted = static_cast<int64_t>(std::floor(share * static_cast<double>(total)));
  const int64_t held = std::clamp(wanted, sample, total - sample);
  Split split;
  int64_t left = total - held;  // still to be trained on
  for (const PackUnit& u : units) {
    const int64_t n = std::min(left, u.end - u.begin);
    if (n > 0) split.training.push_back({u.document, u.begin, u.begin + n});
    if (u.begin + n < u.end) split.validation.push_back({u.document, u.begin + n, u.end});
    left -= n;
  }
  return split;
}

}  // namespace

std::vector<PackUnit> whole_units(const TokenStore& store, int64_t slot_tokens,
                                  const std::string& long_pairs, UnitsReport& report) {
  if (long_pairs != "truncate" && long_pairs != "drop")
    fail("long pairs: '{}'; known are truncate, drop", long_pairs);
  std::vector<PackUnit> units;
  for (int64_t d = 0; d < store.documents(); ++d) {
    const PackUnit u{d, store.begin(d), store.begin(d + 1)};
    if (!store.paired()) {
      if (u.begin < u.end) units.push_back(u);
      continue;
    }
    ++d;
    PackUnit a = u, b{d, store.begin(d), store.begin(d + 1)};
    if (fit_pair(store, slot_tokens, long_pairs == "truncate", a, b, report)) {
      units.push_back(a);
      units.push_back(b);
    } else {
      ++report.dropped_pairs;
    }
  }
  return units;
}

Split hold_out(std::vector<PackUnit> units, double share, int64_t slot_tokens, bool may_cut,
               bool paired, const std::string& source) {
  if (!(share >= 0 && share < 1)) fail("{} of the data held out; needs 0 or more, below 1", share);
  if (share == 0) return {std::move(units), {}};
  int64_t total = 0;
  for (const PackUnit& u : units) total += u.end - u.begin;
  const int64_t group = paired ? 2 : 1, n = static_cast<int64_t>(units.size()) / group;
  if (may_cut && n < kFewDocuments) return cut_end(units, total, share, slot_tokens, source);
  if (n < 2)
    fail("'{}' has {} document(s), none can be held out; hold nothing out, or name validation data",
         source, n);
  const auto wanted = static_cast<int64_t>(std::llround(share * static_cast<double>(n)));
  const int64_t held = std::clamp<int64_t>(wanted, 1, n - 1);
  const std::vector<int64_t> order = shuffled(n, {kSplitSeed, 0, 0, 0});
  std::vector<bool> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < held; ++i) out[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
  Split split;
  for (int64_t i = 0; i < n * group; ++i)
    (out[static_cast<size_t>(i / group)] ? split.validation : split.training)
        .push_back(units[static_cast<size_t>(i)]);
  return split;
}

}  // namespace plait
