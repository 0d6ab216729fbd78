#include "plait/plan/placement.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace plait {

bool Placement::is_pending(std::string_view axis) const {
  return std::any_of(pending.begin(), pending.end(),
                     [&](const Pending& p) { return p.axis == axis; });
}

bool Placement::is_split(std::string_view axis) const {
  for (const DimSplit& d : dims)
    if (std::find(d.axes.begin(), d.axes.end(), axis) != d.axes.end()) return true;
  return false;
}

Placement replicated(size_t rank) { return {std::vector<DimSplit>(rank), {}, {}}; }

void sort_pending(Placement& placement, const Mesh& mesh) {
  auto position = [&](const Pending& p) {
    size_t i = 0;
    while (i < mesh.axes().size() && mesh.axes()[i].name != p.axis) ++i;
    return i;
  };
  std::stable_sort(placement.pending.begin(), placement.pending.end(),
                   [&](const Pending& a, const Pending& b) { return position(a) < position(b); });
}

std::string to_string(const Placement& placement) {
  std::string s = "[";
  for (size_t i = 0; i < placement.dims.size(); ++i) {
    const DimSplit& d = placement.dims[i];
    if (i > 0) s += ", ";
    s += d.axes.empty() ? "-" : fmt::format("{}", fmt::join(d.axes, "."));
    if (!d.sizes.empty()) s += fmt::format("({})", fmt::join(d.sizes, " "));
  }
  s += "]";
  for (const Pending& p : placement.pending)
    s += fmt::format(" {}({})", to_string(p.reduce), p.axis);
  if (!placement.stages.empty()) s += fmt::format(" on {}", fmt::join(placement.stages, " "));
  return s;
}

namespace {

std::vector<std::string> split_at_dots(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find('.', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_number(std::string_view token) {
  return !token.empty() &&
         std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Placement parse_placement(Lexer& in, size_t rank) {
  Placement p;
  in.expect("[");
  while (!in.accept("]")) {
    if (!p.dims.empty()) in.expect(",");
    DimSplit d;
    if (!in.accept("-")) d.axes = split_at_dots(in.word());
    if (in.accept("("))
      while (!in.accept(")")) d.sizes.push_back(in.integer(0, int64_t{1} << 40));
    p.dims.push_back(std::move(d));
  }
  if (p.dims.size() != rank) in.error("{} dimensions are placed, expected {}", p.dims.size(), rank);
  for (;;) {
    Pending pending;
    if (in.accept("sum"))
      pending.reduce = Reduce::sum;
    else if (in.accept("max"))
      pending.reduce = Reduce::max;
    else if (in.accept("lse"))
      pending.reduce = Reduce::lse;
    else
      break;
    in.expect("(");
    pending.axis = in.word();
    in.expect(")");
    p.pending.push_back(std::move(pending));
  }
  if (in.accept("on"))
    while (!in.at_line_end() && is_number(in.peek()))
      p.stages.push_back(static_cast<int>(in.integer(0, 1 << 20)));
  return p;
}

int64_t Box::elements() const {
  return std::accumulate(size.begin(), size.end(), int64_t{1}, std::multiplies<>());
}

Box shard(const TensorType& type, const Placement& placement, const Mesh& mesh, int rank) {
  Box box;
  for (size_t i = 0; i < type.dims.size(); ++i) {
    const Extent& e = type.dims[i];
    int64_t begin = 0, units = e.units();
    const DimSplit& d = placement.dims.at(i);
    if (!d.sizes.empty()) {
      const auto c = static_cast<size_t>(mesh.coordinate(rank, d.axes.at(0)));
      begin =
          std::accumulate(d.sizes.begin(), d.sizes.begin() + static_cast<int64_t>(c), int64_t{0});
      box.begin.push_back(begin);
      box.size.push_back(d.sizes.at(c));
      continue;
    }
    for (const std::string& axis : d.axes) {
      const int64_t ways = mesh.size(axis), c = mesh.coordinate(rank, axis);
      begin += c * (units / ways) + std::min(c, units % ways);
      units = units / ways + (c < units % ways ? 1 : 0);
    }
    box.begin.push_back(begin * e.unit);
    box.size.push_back(units * e.unit);
  }
  return box;
}

TensorType local_type(const TensorType& type, const Placement& placement, const Mesh& mesh,
                      int rank) {
  const Box box = shard(type, placement, mesh, rank);
  TensorType local = type;
  for (size_t i = 0; i < local.dims.size(); ++i) local.dims[i].size = box.size[i];
  return local;
}

bool lives_on(const Placement& placement, const Mesh& mesh, int rank) {
  return placement.stages.empty() ||
         std::find(placement.stages.begin(), placement.stages.end(),
                   mesh.pipeline_coordinate(rank)) != placement.stages.end();
}

std::vector<int> comm_group(const Placement& placement, const Mesh& mesh, int rank,
                            std::string_view axis) {
  std::vector<int> ranks = mesh.group(rank, axis);
  if (axis == mesh.pipeline_axis())
    std::erase_if(ranks, [&](int r) { return !lives_on(placement, mesh, r); });
  return ranks;
}

void check_placement(const std::string& what, const TensorType& type, const Placement& placement,
                     const Mesh& mesh) {
  if (placement.dims.size() != type.dims.size())
    fail("{}: {} dimensions are placed, the tensor {} has {}", what, placement.dims.size(),
         to_string(type), type.dims.size());
  std::set<std::string> used;
  auto use = [&](const std::string& axis) {
    if (!mesh.has(axis)) fail("{}: axis '{}' is not in the mesh {}", what, axis, to_string(mesh));
    if (!used.insert(axis).second) fail("{}: axis '{}' is used twice", what, axis);
  };
  for (size_t i = 0; i < placement.dims.size(); ++i) {
    const DimSplit& d = placement.dims[i];
    for (const std::string& axis : d.axes) {
      use(axis);
      if (axis == mesh.pipeline_axis())
        fail("{}: the pipeline axis '{}' cannot split a tensor; it holds blocks", what, axis);
    }
    if (d.sizes.empty()) continue;
    const Extent& e = type.dims[i];
    if (d.axes.size() != 1 || d.sizes.size() != static_cast<size_t>(mesh.size(d.axes[0])))
      fail("{}: {} shard sizes; needs one axis, and as many sizes as it has ranks", what,
           d.sizes.size());
    int64_t sum = 0;
    for (const int64_t s : d.sizes) {
      if (s < 0 || s % e.unit != 0)
        fail("{}: shard size {} of dimension {}; needs a multiple of {}", what, s, i, e.unit);
      sum = checked_add(sum, s);
    }
    if (sum != e.size)
      fail("{}: shard sizes add up to {}, the dimension has {}", what, sum, e.size);
  }
  for (const Pending& p : placement.pending) use(p.axis);
  for (const int s : placement.stages)
    if (s < 0 || s >= mesh.pipeline_size()) fail("{}: there is no pipeline rank {}", what, s);
}

const char* to_string(Comm::Kind kind) {
  constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "slice"};
  return kNames[static_cast<size_t>(kind)];
}

namespace {
// How many leading axes of the split may stay as they are on the way to `to`.
size_t common_prefix(const DimSplit& from, const DimSplit& to) {
  if (from.sizes != to.sizes) return 0;
  size_t n = 0;
  while (n < from.axes.size() && n < to.axes.size() && from.axes[n] == to.axes[n]) ++n;
  return n;
}
}  // namespace

std::vector<Comm> reshard_steps(const Placement& from, const Placement& to) {
  PLAIT_CHECK(from.dims.size() == to.dims.size(), "reshard between tensors of different rank");
  std::vector<Comm> steps;
  Placement now = from;
  auto take = [&](Comm step) {
    now = after(now, step, to.dims.empty() ? DimSplit{} : to.dims[step.dim]);
    steps.push_back(std::move(step));
  };
  for (const Pending& p : to.pending)
    if (std::find(from.pending.begin(), from.pending.end(), p) == from.pending.end())
      fail("cannot make {} from {}: a pending {} over '{}' cannot come from a whole tensor",
           to_string(to), to_string(from), to_string(p.reduce), p.axis);
  for (const Pending& p : from.pending) {
    if (std::find(to.pending.begin(), to.pending.end(), p) != to.pending.end()) continue;
    Comm step{Comm::Kind::all_reduce, p.axis, 0, p.reduce};
    for (size_t d = 0; d < to.dims.size(); ++d) {
      const size_t n = now.dims[d].axes.size();
      if (to.dims[d].axes.size() > n && to.dims[d].axes[n] == p.axis &&
          (n == 0 || common_prefix(now.dims[d], to.dims[d]) == n))
        step = {Comm::Kind::reduce_scatter, p.axis, d, p.reduce};
    }
    take(step);
  }
  for (size_t d = 0; d < to.dims.size(); ++d)
    while (now.dims[d].axes.size() > common_prefix(now.dims[d], to.dims[d]))
      take({Comm::Kind::all_gather, now.dims[d].axes.back(), d, Reduce::sum});
  for (size_t d = 0; d < to.dims.size(); ++d)
    while (now.dims[d].axes.size() < to.dims[d].axes.size())
      take({Comm::Kind::slice, to.dims[d].axes[now.dims[d].axes.size()], d, Reduce::sum});
  return steps;
}

Placement after(const Placement& from, const Comm& step, const DimSplit& target_dim) {
  Placement p = from;
  const bool reduces =
      step.kind == Comm::Kind::all_reduce || step.kind == Comm::Kind::reduce_scatter;
  if (reduces) std::erase_if(p.pending, [&](const Pending& q) { return q.axis == step.axis; });
  if (step.kind == Comm::Kind::all_gather) {
    p.dims.at(step.dim).axes.pop_back();
    p.dims[step.dim].sizes.clear();
  }
  if (step.kind == Comm::Kind::slice || step.kind == Comm::Kind::reduce_scatter) {
    p.dims.at(step.dim).axes.push_back(step.axis);
    p.dims[step.dim].sizes = target_dim.sizes;
  }
  return p;
}

double step_bytes(const TensorType& type, const Placement& from, const Comm& step,
                  const Mesh& mesh) {
  if (step.kind == Comm::Kind::slice) return 0;
  double local = static_cast<double>(type.bytes());
  for (const DimSplit& d : from.dims)
    for (const std::string& axis : d.axes) local /= mesh.size(axis);
  const double n = mesh.size(step.axis);
  if (step.kind == Comm::Kind::all_reduce) return 2 * (n - 1) / n * local;
  if (step.kind == Comm::Kind::reduce_scatter) return (n - 1) / n * local;
  return (n - 1) * local;
}

}  // namespace plait
