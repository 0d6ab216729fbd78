// Each target briefly, on seeded mutations; `./run fuzz` does the same for as long as one likes,
// guided by coverage.
#include "fuzz.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "plait/base/error.h"

namespace plait {
namespace {

int64_t runs() {
  const char* wanted = std::getenv("PLAIT_FUZZ_RUNS");
  return wanted == nullptr ? 1500 : std::max(1, std::atoi(wanted));
}

TEST(Fuzz, TargetsReadTheirSeeds) {
  for (const FuzzTarget& t : fuzz_targets()) {
    const std::vector<std::string> seeds = t.seeds();
    EXPECT_FALSE(seeds.empty()) << t.name;
    for (const std::string& s : seeds) EXPECT_NO_THROW(t.run(s)) << t.name;
  }
}

TEST(Fuzz, MutationsAreReadOrRefused) {
  for (const FuzzTarget& t : fuzz_targets()) {
    const std::vector<std::string> seeds = t.seeds();
    int64_t refused = 0;
    for (int64_t i = 0; i < runs(); ++i) {
      const std::string input = mutated(seeds, 1, static_cast<uint64_t>(i));
      try {
        t.run(input);
      } catch (const Error& e) {
        ++refused;
        EXPECT_FALSE(std::string_view(e.what()).empty());
      } catch (const std::exception& e) {
        ADD_FAILURE() << t.name << ", mutation " << i
                      << ": threw something that is no Error: " << e.what();
      }
    }
    EXPECT_GT(refused, 0) << t.name << ": no mutation was refused, so the target reads nothing";
  }
}

}  // namespace
}  // namespace plait
