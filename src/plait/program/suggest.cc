#include "plait/program/suggest.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "plait/program/verify.h"

namespace plait {

namespace {

constexpr size_t kTries = 120;

struct Change {
  std::string text;
  std::string field;  // two changes of one field do not go together
  std::function<void(Plan&, std::vector<Axis>&)> apply;
};

// Sizes worth trying on one axis: the divisors of a world that must be filled, else small ones.
std::vector<int> sizes_to_try(int ranks) {
  std::vector<int> sizes;
  for (int size = 1; size <= (ranks > 0 ? ranks : 64); ++size)
    if (ranks > 0 ? ranks % size == 0 : size <= 8 || size % 12 == 0 || (size & (size - 1)) == 0)
      sizes.push_back(size);
  return sizes;
}

Change resize(const Axis& axis, size_t i, int size) {
  return {fmt::format("{}: {} -> {}", axis.name, axis.size, size), axis.name,
          [i, size](Plan&, std::vector<Axis>& a) { a[i].size = size; }};
}

std::vector<Change> single_changes(const Plan& plan, int ranks) {
  std::vector<Change> changes;
  const std::vector<Axis>& axes = plan.mesh.axes();
  for (size_t i = axes.size(); i-- > 0;)
    for (const int size : sizes_to_try(ranks))
      if (size != axes[i].size) changes.push_back(resize(axes[i], i, size));
  if (!plan.blocks.empty())
    changes.push_back({"pipeline.blocks: left out, so that FLOPs are balanced", "blocks",
                       [](Plan& p, std::vector<Axis>&) { p.blocks.clear(); }});
  if (plan.schedule != "1f1b")
    changes.push_back({fmt::format("pipeline.schedule: {} -> 1f1b", plan.schedule), "schedule",
                       [](Plan& p, std::vector<Axis>&) { p.schedule = "1f1b"; }});
  for (const auto& [letter, split] : plan.split)
    changes.push_back({fmt::format("split.{}: left out", letter), "split." + letter,
                       [l = letter](Plan& p, std::vector<Axis>&) { p.split.erase(l); }});
  for (size_t i = 0; i < plan.place.size(); ++i)
    changes.push_back({fmt::format("place \"{}\": left out", plan.place[i].first),
                       fmt::format("place.{}", i),
                       [pattern = plan.place[i].first](Plan& p, std::vector<Axis>&) {
                         std::erase_if(p.place, [&](const auto& e) { return e.first == pattern; });
                       }});
  return changes;
}

struct Candidate {
  std::vector<const Change*> changes;
  std::vector<Axis> axes;
  double distance = 0;  // in doublings of the number of ranks
};

int64_t product(const std::vector<Axis>& axes) {
  int64_t n = 1;
  for (const Axis& a : axes) n *= a.size;
  return n;
}

Candidate make_candidate(const Plan& plan, std::vector<const Change*> changes) {
  Candidate c{std::move(changes), plan.mesh.axes(), 0};
  Plan scratch = plan;
  for (const Change* change : c.changes) change->apply(scratch, c.axes);
  c.distance = std::abs(std::log2(static_cast<double>(product(c.axes)) / plan.mesh.ranks()));
  return c;
}

std::optional<Plan> try_candidate(const Model& model, const Plan& plan, const Candidate& c,
                                  const LowerOptions& options) {
  try {
    Plan changed = plan;
    std::vector<Axis> axes = plan.mesh.axes();
    for (const Change* change : c.changes) change->apply(changed, axes);
    changed.mesh = Mesh(std::move(axes), plan.mesh.pipeline_axis());
    verify(lower(model, changed, options).programs);
    return changed;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void check_ranks(const Plan& plan, int ranks) {
  if (plan.mesh.ranks() != ranks)
    fail("the plan has {} ranks ({}), the world has {}; every rank runs one program",
         plan.mesh.ranks(), to_string(plan.mesh), ranks);
}

std::optional<Suggestion> suggest_plan(const Model& model, const Plan& plan, int ranks,
                                       const LowerOptions& options) {
  const std::vector<Change> singles = single_changes(plan, ranks);
  std::vector<Candidate> candidates;
  for (const Change& a : singles) candidates.push_back(make_candidate(plan, {&a}));
  for (size_t i = 0; i < singles.size(); ++i)
    for (size_t j = i + 1; j < singles.size(); ++j)
      if (singles[i].field != singles[j].field)
        candidates.push_back(make_candidate(plan, {&singles[i], &singles[j]}));
  // A world may need three axes changed at once.
  const bool triples = ranks > 0 && singles.size() <= 100;
  for (size_t i = 0; triples && i < singles.size(); ++i)
    for (size_t j = i + 1; j < singles.size(); ++j)
      for (size_t k = j + 1; k < singles.size(); ++k)
        if (plan.mesh.has(singles[k].field) && singles[i].field != singles[j].field &&
            singles[j].field != singles[k].field && singles[i].field != singles[k].field)
          candidates.push_back(make_candidate(plan, {&singles[i], &singles[j], &singles[k]}));
  std::erase_if(candidates, [&](const Candidate& c) {
    return ranks > 0 ? product(c.axes) != ranks : product(c.axes) > 4 * plan.mesh.ranks();
  });
  std::stable_sort(
      candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return std::pair(a.changes.size(), a.distance) < std::pair(b.changes.size(), b.distance);
      });
  for (size_t i = 0; i < std::min(kTries, candidates.size()); ++i)
    if (const auto found = try_candidate(model, plan, candidates[i], options)) {
      Suggestion s{*found, {}};
      for (const Change* change : candidates[i].changes) s.changes.push_back(change->text);
      return s;
    }
  return std::nullopt;
}

}  // namespace plait
