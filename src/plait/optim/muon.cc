// muon: momentum, orthogonalized (Jordan et al., 2024), as torch.optim.Muon. For the matrices
// inside a model; embeddings, the head, norms and biases are left to AdamW, whose settings stand
// here too. Matrices are gathered whole for the orthogonalization and the momentum stays placed as
// the parameter is: the rule of the op says so, and partition does it.
#include <cmath>

#include "plait/base/glob.h"
#include "plait/optim/record.h"

namespace plait {
namespace {

std::vector<StateDef> states(const Settings&, const TensorType& type) {
  return {{"momentum", every_dim(type)}};
}

// The factor on the learning rate that makes it fit for matrices of every shape.
double size_of(double scaling, const TensorType& type) {
  const auto rows = static_cast<double>(type.dims[type.dims.size() - 2].size);
  const auto columns = static_cast<double>(type.dims.back().size);
  if (scaling == 0) return std::sqrt(std::max(1.0, rows / columns));
  if (scaling == 1) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(rows / columns);
}

void update(UpdateContext& u) {
  const std::vector<ValueId> moved = u.graph.emit(
      "muon_momentum", {u.states[0], u.gradient, u.scale},
      {{"momentum", u.setting("momentum")}, {"nesterov", u.setting("nesterov")}}, Phase::U);
  const ValueId direction = u.emit1("orthogonalize", {moved[1]},
                                    {{"a", u.setting("a")},
                                     {"b", u.setting("b")},
                                     {"c", u.setting("c")},
                                     {"eps", u.setting("eps")},
                                     {"steps", u.setting("steps")}});
  u.emit1("muon_step", {u.value, direction, u.hyper, u.scale},
          u.attrs({{"size", size_of(u.setting("scaling"), u.type)}}));
}

void check(const Settings&, const Param& param) {
  const size_t dims = param.type.dims.size();
  if (dims != 2 && dims != 3)
    fail(
        "optimizer 'muon': found {} dimensions, expected 2, or 3 for a stack of matrices; "
        "another optimizer can be named for a group",
        dims);
}

// Matrices, but for those that stand for tokens or positions.
bool wants(const Param& param) {
  const auto& dims = param.type.dims;
  if (dims.size() != 2 && dims.size() != 3) return false;
  for (const Extent& e : dims)
    if (e.name == "V" || e.name == "P") return false;
  for (const char* pattern : {"*embed*", "*wte*", "*wpe*", "*lm_head*"})
    if (glob_match(pattern, param.name)) return false;
  return true;
}

}  // namespace

OptimizerDef muon_optimizer() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Setting& s : adamw_settings()) all.push_back("adamw_" + std::string(s.name));
    return all;
  }();
  OptimizerDef def;
  def.name = "muon";
  def.summary = "orthogonalized momentum for matrices, AdamW for the rest";
  def.settings = {
      {"momentum", "decay of the running mean of gradients", 0.95, 0, kBelowOne},
      {"nesterov", "look ahead along the momentum", 1, 0, 1, true},
      {"steps", "of the Newton-Schulz iteration", 5, 1, 99, true},
      {"a", "coefficient of X in it", 3.4445, -100, 100},
      {"b", "coefficient of X XT X", -4.775, -100, 100},
      {"c", "coefficient of X XT X XT X", 2.0315, -100, 100},
      {"eps", "least norm that a matrix is divided by", 1e-7, 0, 1},
      {"scaling",
       "of the rate by shape: 0 root of max(1, rows / columns), 1 0.2 root of the larger "
       "(as large as AdamW's steps), 2 root of rows / columns",
       1, 0, 2, true},
      {"adamw_rate", "factor on the learning rate of what AdamW updates", 1, 0, 1e30}};
  const std::vector<Setting> adamw = adamw_settings();
  for (size_t i = 0; i < adamw.size(); ++i) {
    def.settings.push_back(adamw[i]);
    def.settings.back().name = names[i];
  }
  def.states = states;
  def.update = update;
  def.check = check;
  def.wants = wants;
  def.other = "adamw";
  return def;
}

}  // namespace plait
