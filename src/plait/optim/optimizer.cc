#include "plait/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "plait/base/glob.h"
#include "plait/base/text.h"

namespace plait {

Attrs UpdateContext::attrs(Attrs more) const {
  more["weight_decay"] = weight_decay;
  if (rate != 1) more["rate"] = rate;
  return more;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerDef& def : all_optimizers()) names.emplace_back(def.name);
  return names;
}

const OptimizerDef& find_optimizer(std::string_view name) {
  for (const OptimizerDef& def : all_optimizers())
    if (def.name == name) return def;
  fail("unknown optimizer '{}'; known are {}", name, fmt::join(optimizer_names(), ", "));
}

TensorType state_type(const StateDef& state, const TensorType& type) {
  TensorType t{type.dtype, {}};
  for (const size_t d : state.dims) t.dims.push_back(type.dims.at(d));
  return t;
}

namespace {

constexpr double kLargest = 1e30;
constexpr Setting kWeightDecay{"weight_decay", "of parameters with two dimensions or more", 0.1, 0,
                               kLargest};
constexpr Setting kMaxNorm{"max_norm", "of the gradient over all parameters; 0: no clipping", 1, 0,
                           kLargest};
constexpr Setting kRate{"rate", "factor on the learning rate", 1, 0, kLargest};

void check_value(std::string_view optimizer, const Setting& s, double value) {
  const bool inside = value >= s.low && value <= s.high && (!s.whole || value == std::floor(value));
  if (inside) return;
  fail("optimizer '{}': {} is {}, expected {} {} to {} ({})", optimizer, s.name, number_text(value),
       s.whole ? "a whole number," : "a number,", number_text(s.low), number_text(s.high),
       s.summary);
}

const Setting& find_setting(const OptimizerDef& def, const std::string& name) {
  for (const Setting& s : def.settings)
    if (s.name == name) return s;
  fail("optimizer '{}' has no setting '{}'; it has {}", def.name, name, settings_text(def.name));
}

// The defaults of the record, overlaid by what is given; both checked.
Settings complete(const OptimizerDef& def, const Settings& given) {
  Settings all;
  for (const Setting& s : def.settings) all[std::string(s.name)] = s.value;
  for (const auto& [name, value] : given) {
    check_value(def.name, find_setting(def, name), value);
    all[name] = value;
  }
  return all;
}

bool matches(const ParamGroup& group, const Param& param) {
  const int dims = static_cast<int>(param.type.dims.size());
  return dims >= group.min_dims && dims <= group.max_dims && glob_match(group.match, param.name);
}

void check_groups(const Optimizer& o, const Model& model) {
  for (const ParamGroup& g : o.groups) {
    if (g.weight_decay) check_value(o.name, kWeightDecay, *g.weight_decay);
    if (g.rate) check_value(o.name, kRate, *g.rate);
    const bool used = std::any_of(model.params.begin(), model.params.end(),
                                  [&](const Param& p) { return matches(g, p); });
    if (!used)
      fail("optimizer group \"{}\" of {} to {} dimensions: no parameter of '{}' matches", g.match,
           g.min_dims, g.max_dims, model.name);
  }
}

// The settings that a record lists for the optimizer it leaves parameters to.
Settings settings_of_other(const OptimizerDef& def, const Settings& all, const OptimizerDef& other,
                           double& rate) {
  const std::string prefix = std::string(other.name) + "_";
  Settings own;
  for (const Setting& s : other.settings)
    if (const auto it = all.find(prefix + std::string(s.name)); it != all.end())
      own[std::string(s.name)] = it->second;
  if (def.other == other.name)
    if (const auto it = all.find(prefix + "rate"); it != all.end()) rate *= it->second;
  return own;
}

ParamUpdate choose(const Optimizer& o, const OptimizerDef& main, const Settings& settings,
                   const Param& param) {
  ParamUpdate u;
  u.weight_decay = param.type.dims.size() >= 2 ? o.weight_decay : 0;
  std::optional<double> decay, rate;
  std::string name;
  Settings extra;
  for (const ParamGroup& g : o.groups) {
    if (!matches(g, param)) continue;
    if (!decay) decay = g.weight_decay;
    if (!rate) rate = g.rate;
    if (name.empty()) name = g.optimizer;
    extra.insert(g.settings.begin(), g.settings.end());  // the first to say it counts
  }
  u.weight_decay = decay.value_or(u.weight_decay);
  u.rate = rate.value_or(1);
  if (name.empty()) name = main.wants == nullptr || main.wants(param) ? main.name : main.other;
  u.def = &find_optimizer(name);
  Settings own = u.def == &main ? settings : settings_of_other(main, settings, *u.def, u.rate);
  for (const auto& [key, value] : extra) own[key] = value;
  u.settings = complete(*u.def, own);
  if (u.def->check != nullptr) u.def->check(u.settings, param);
  if (u.def->states != nullptr) u.states = u.def->states(u.settings, param.type);
  return u;
}

}  // namespace

std::string settings_text(std::string_view optimizer) {
  std::string text = fmt::format("{} ({}), {} ({})", kWeightDecay.name, kWeightDecay.value,
                                 kMaxNorm.name, kMaxNorm.value);
  for (const Setting& s : find_optimizer(optimizer).settings)
    text += fmt::format(", {} ({})", s.name, number_text(s.value));
  return text;
}

void set_setting(Optimizer& optimizer, const std::string& name, double value) {
  if (name == kWeightDecay.name || name == kMaxNorm.name) {
    const bool decay = name == kWeightDecay.name;
    check_value(optimizer.name, decay ? kWeightDecay : kMaxNorm, value);
    (decay ? optimizer.weight_decay : optimizer.max_norm) = value;
    return;
  }
  const OptimizerDef& def = find_optimizer(optimizer.name);
  check_value(def.name, find_setting(def, name), value);
  optimizer.settings[name] = value;
}

std::vector<ParamUpdate> choose_updates(const Optimizer& optimizer, const Model& model) {
  const OptimizerDef& def = find_optimizer(optimizer.name);
  const Settings settings = complete(def, optimizer.settings);
  check_value(optimizer.name, kWeightDecay, optimizer.weight_decay);
  check_value(optimizer.name, kMaxNorm, optimizer.max_norm);
  check_groups(optimizer, model);
  std::vector<ParamUpdate> updates;
  for (const Param& param : model.params) {
    try {
      updates.push_back(choose(optimizer, def, settings, param));
    } catch (const Error& e) {
      fail("parameter '{}': {}", param.name, e.what());
    }
  }
  return updates;
}

}  // namespace plait
