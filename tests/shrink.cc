// A failing case made smaller while it still fails: fewer micro-batches, axes, splits, and keys of
// config.json.
#include <functional>
#include <nlohmann/json.hpp>

#include "harness.h"
#include "plait/model/families.h"

namespace plait {

namespace {

// Without one key of config.json, or with fewer layers: a smaller model, if it still is one.
std::vector<std::function<void(Case&)>> config_changes(const Case& failing) {
  std::vector<std::function<void(Case&)>> tries;
  const auto config = nlohmann::json::parse(failing.config);
  for (const auto& [key, value] : config.items()) {
    if (key == "model_type") continue;
    tries.emplace_back([config, k = key](Case& c) {
      auto smaller = config;
      smaller.erase(k);
      c.config = smaller.dump();
    });
    if ((key == "num_hidden_layers" || key == "n_layer") && value.get<int64_t>() > 1)
      tries.emplace_back([config, k = key, n = value.get<int64_t>()](Case& c) {
        auto smaller = config;
        smaller[k] = n - 1;
        c.config = smaller.dump();
        c.plan.blocks.clear();
      });
  }
  return tries;
}

bool has_model(const Case& c) {
  try {
    case_model(c);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Case shrink(Case failing, Dtype dtype) {
  if (!has_model(failing)) return failing;
  auto fails = [&](const Case& c) {
    return has_model(c) && run_case(c, dtype).outcome == Outcome::failed;
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    std::vector<std::function<void(Case&)>> tries = {
        [](Case& c) { c.plan.microbatches = std::max<int64_t>(1, c.plan.microbatches - 1); },
        [](Case& c) { c.batch.slots = std::max<int64_t>(1, c.batch.slots - 1); },
        [](Case& c) { c.plan.blocks.clear(); },
        [](Case& c) { c.lora.reset(); },
        [](Case& c) {
          if (c.lora && c.lora->targets.size() > 1) c.lora->targets.pop_back();
        },
        [](Case& c) { c.plan.recompute = Recompute::none; },
        [](Case& c) {
          if (!c.plan.place.empty()) c.plan.place.pop_back();
        },
        [](Case& c) {
          if (!c.plan.place.empty()) c.plan.place.erase(c.plan.place.begin());
        },
    };
    for (const auto& [letter, split] : failing.plan.split)
      tries.emplace_back([l = letter](Case& c) { c.plan.split.erase(l); });
    for (size_t i = 0; i < failing.plan.mesh.axes().size(); ++i)
      tries.emplace_back([i](Case& c) {
        std::vector<Axis> axes = c.plan.mesh.axes();
        axes[i].size = 1;
        c.plan.mesh = Mesh(axes, c.plan.mesh.pipeline_axis());
        for (auto& [letter, split] : c.plan.split) split.sizes.clear();
      });
    for (auto& change : config_changes(failing)) tries.push_back(std::move(change));
    for (const auto& change : tries) {
      Case c = failing;
      change(c);
      if (print_case(c) == print_case(failing) || !fails(c)) continue;
      failing = c;
      smaller = true;
      break;
    }
  }
  return failing;
}

}  // namespace plait
