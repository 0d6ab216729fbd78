// Fuzz targets: readers of files from strangers, each held to one promise: any input is either
// read or refused with an Error. Anything else (another exception, a crash, a hang, memory out of
// proportion) is a defect.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

struct FuzzTarget {
  std::string_view name;
  // Returns, or throws Error. May write below fuzz_folder() only.
  void (*run)(std::string_view input);
  // Inputs that are read without an error: what mutations start from.
  std::vector<std::string> (*seeds)();
};

std::span<const FuzzTarget> fuzz_targets();

// A folder of this process for readers that want a file; deleted when the process ends.
const std::string& fuzz_folder();
// Writes `input` into a file of that folder and returns its path.
std::string fuzz_file(std::string_view name, std::string_view input);

// The `index`-th mutation of the seeds: bytes flipped, cut, repeated, spliced; numbers replaced.
// A function of its arguments alone.
std::string mutated(const std::vector<std::string>& seeds, uint64_t seed, uint64_t index);

}  // namespace plait
