// Optimizers as data: one record each in a table, as ops have one. A record says which settings
// there are, which states a parameter has, and which nodes update it; program/ places and lowers
// those nodes like any others, and knows no optimizer by name.
//
//   Optimizer o;                                  // what a user asks for
//   o.name = "muon";
//   set_setting(o, "momentum", 0.9);              // checked: known, and in its range
//   o.groups = {{.match = "*.router.weight", .optimizer = "adamw"}};
//   std::vector<ParamUpdate> updates = choose_updates(o, model);
//
// settings_text("muon") lists what may be set, for messages and help.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plait/model/model.h"

namespace plait {

using Settings = std::map<std::string, double>;

// What holds for the parameters that match. The first group that says something counts, field by
// field; what no group says is the default.
struct ParamGroup {
  std::string match = "*";  // of names; * matches anything
  int min_dims = 0, max_dims = static_cast<int>(kMaxDims);
  std::optional<double>
      weight_decay;            // else Optimizer::weight_decay from two dimensions on, else 0
  std::optional<double> rate;  // factor on the learning rate; else 1
  std::string optimizer;       // another one for these; empty: as the optimizer chooses
  Settings settings;           // of the optimizer that updates these
};

struct Optimizer {
  std::string name = "adamw";
  Settings settings;          // those that differ from the defaults of the record
  double weight_decay = 0.1;  // of parameters with two dimensions or more
  double max_norm = 1.0;      // of the gradient over all parameters; 0: no clipping
  std::vector<ParamGroup> groups;
};

struct Setting {
  std::string_view name, summary;
  double value, low, high;  // the default, and the range, ends included
  bool whole = false;       // whole numbers only; of 0 to 1: a switch
};

// One state of one parameter: "PREFIX/NAME", with some of the parameter's dimensions, placed as
// they are. All states begin as 0.
struct StateDef {
  std::string prefix;
  std::vector<size_t> dims;
};

// What an update is made of. `emit` functions add nodes of phase U to `graph`. `scale` is the
// factor on the gradient that clips it; if it is not finite, the gradient is not, and nothing may
// change: every op that writes in place takes the scale, and then leaves its operands as they are.
struct UpdateContext {
  Graph& graph;
  ValueId value, gradient;      // of the parameter's type, placed alike; the gradient whole
  std::vector<ValueId> states;  // as the record lists them
  ValueId hyper;                // [2] = {learning rate, step from 1}
  ValueId scale;                // scalar
  const TensorType& type;
  double weight_decay, rate;  // of this parameter; the rate is a factor
  const Settings& settings;   // complete
  double setting(const std::string& setting_name) const { return settings.at(setting_name); }
  // {"weight_decay", "rate"} and more, as update ops take them; a rate of 1 is left out.
  Attrs attrs(Attrs more) const;
  ValueId emit1(const std::string& op, const std::vector<ValueId>& in, const Attrs& attrs = {}) {
    return graph.emit1(op, in, attrs, Phase::U);
  }
};

struct OptimizerDef {
  std::string_view name, summary;
  std::vector<Setting> settings;
  std::vector<StateDef> (*states)(const Settings&, const TensorType&) = nullptr;  // null: none
  void (*update)(UpdateContext&) = nullptr;                                       // null: no update
  // Throws Error when this parameter cannot be updated so.
  void (*check)(const Settings&, const Param&) = nullptr;
  // Parameters that `wants` refuses are updated by `other`, whose settings are listed here as
  // "OTHER_NAME"; "OTHER_rate" is a factor on its learning rate.
  bool (*wants)(const Param&) = nullptr;  // null: all
  std::string_view other;
};

// All of them, in the order of the table (optim/table.cc).
std::span<const OptimizerDef> all_optimizers();
const OptimizerDef& find_optimizer(std::string_view name);  // throws Error listing what is known
std::vector<std::string> optimizer_names();

// What may be set, in a line: "beta1 (0.9), beta2 (0.95), ...". Those of every optimizer
// (weight_decay, max_norm) are named first.
std::string settings_text(std::string_view optimizer);
// Sets one by name, weight_decay and max_norm included. Throws Error when the optimizer has no
// such setting, listing those it has, and when the value is out of range.
void set_setting(Optimizer& optimizer, const std::string& name, double value);

// How one parameter is updated.
struct ParamUpdate {
  const OptimizerDef* def = nullptr;
  Settings settings;  // complete
  double weight_decay = 0, rate = 1;
  std::vector<StateDef> states;
};

// One per parameter of the model. Throws Error when a setting is unknown or out of range, when a
// group matches no parameter, and when an optimizer cannot update what a group gives it.
std::vector<ParamUpdate> choose_updates(const Optimizer& optimizer, const Model& model);

// The type of a state of a parameter of this type.
TensorType state_type(const StateDef& state, const TensorType& type);

}  // namespace plait
