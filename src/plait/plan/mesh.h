// Mesh: named axes over ranks, outermost first. Rank numbers run row-major over the axes, so the
// innermost axis joins neighbours. One axis may be the pipeline axis: its coordinates are the
// pipeline ranks, and tensors live on some of them.
//
//   Mesh mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}}, "pp");
//   mesh.group(5, "dp")  ->  {5, 7}
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plait {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

class Mesh {
 public:
  Mesh() = default;
  Mesh(std::vector<Axis> axes, std::string pipeline_axis);  // throws on bad sizes and names

  const std::vector<Axis>& axes() const { return axes_; }
  const std::string& pipeline_axis() const { return pipeline_axis_; }  // empty: none
  int ranks() const { return ranks_; }
  bool has(std::string_view axis) const;
  int size(std::string_view axis) const;  // throws for an unknown axis
  int pipeline_size() const { return pipeline_axis_.empty() ? 1 : size(pipeline_axis_); }
  int coordinate(int rank, std::string_view axis) const;
  int pipeline_coordinate(int rank) const;
  // The rank at `coordinate` of `axis`, elsewhere like `rank`.
  int neighbour(int rank, std::string_view axis, int coordinate) const;
  // The ranks that differ from `rank` only along `axis`, in order of coordinate.
  std::vector<int> group(int rank, std::string_view axis) const;
  bool operator==(const Mesh&) const = default;

 private:
  int stride(std::string_view axis) const;
  std::vector<Axis> axes_;
  std::string pipeline_axis_;
  int ranks_ = 1;
};

std::string to_string(const Mesh& mesh);  // "pp=2 dp=2 tp=2"

}  // namespace plait
