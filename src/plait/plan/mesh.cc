#include "plait/plan/mesh.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "plait/base/error.h"

namespace plait {

Mesh::Mesh(std::vector<Axis> axes, std::string pipeline_axis)
    : axes_(std::move(axes)), pipeline_axis_(std::move(pipeline_axis)) {
  std::set<std::string> names;
  int64_t ranks = 1;
  for (const Axis& a : axes_) {
    const bool word = !a.name.empty() && std::isalpha(static_cast<unsigned char>(a.name[0])) != 0 &&
                      std::all_of(a.name.begin(), a.name.end(),
                                  [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (!word) fail("mesh: axis '{}'; needs a name of letters, digits and _", a.name);
    if (!names.insert(a.name).second) fail("mesh: axis '{}' stands twice", a.name);
    if (a.size < 1) fail("mesh: axis '{}' has size {}; needs 1 or more", a.name, a.size);
    ranks *= a.size;
    if (ranks > 1 << 20) fail("mesh: more than {} ranks", 1 << 20);
  }
  ranks_ = static_cast<int>(ranks);
  if (!pipeline_axis_.empty() && !has(pipeline_axis_))
    fail("pipeline axis '{}' is not an axis of the mesh {}", pipeline_axis_, to_string(*this));
}

bool Mesh::has(std::string_view axis) const {
  for (const Axis& a : axes_)
    if (a.name == axis) return true;
  return false;
}

int Mesh::size(std::string_view axis) const {
  for (const Axis& a : axes_)
    if (a.name == axis) return a.size;
  fail("axis '{}' is not an axis of the mesh {}", axis, to_string(*this));
}

int Mesh::stride(std::string_view axis) const {
  int stride = 1;
  for (auto a = axes_.rbegin(); a != axes_.rend(); ++a) {
    if (a->name == axis) return stride;
    stride *= a->size;
  }
  fail("axis '{}' is not an axis of the mesh {}", axis, to_string(*this));
}

int Mesh::coordinate(int rank, std::string_view axis) const {
  return rank / stride(axis) % size(axis);
}

int Mesh::pipeline_coordinate(int rank) const {
  return pipeline_axis_.empty() ? 0 : coordinate(rank, pipeline_axis_);
}

int Mesh::neighbour(int rank, std::string_view axis, int coordinate_wanted) const {
  return rank + (coordinate_wanted - coordinate(rank, axis)) * stride(axis);
}

std::vector<int> Mesh::group(int rank, std::string_view axis) const {
  std::vector<int> ranks;
  for (int c = 0; c < size(axis); ++c) ranks.push_back(neighbour(rank, axis, c));
  return ranks;
}

std::string to_string(const Mesh& mesh) {
  std::string s;
  for (const Axis& a : mesh.axes())
    s += fmt::format("{}{}={}", s.empty() ? "" : " ", a.name, a.size);
  return s.empty() ? "one rank" : s;
}

}  // namespace plait
