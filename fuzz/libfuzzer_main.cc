// libFuzzer's entry; PLAIT_FUZZ_TARGET names the target. `./run fuzz NAME` sets all of this up.
#include <cstdio>
#include <cstdlib>

#include "fuzz.h"
#include "plait/base/error.h"

namespace {

const plait::FuzzTarget& chosen() {
  const char* name = std::getenv("PLAIT_FUZZ_TARGET");
  for (const plait::FuzzTarget& t : plait::fuzz_targets())
    if (name != nullptr && t.name == name) return t;
  std::fprintf(stderr, "PLAIT_FUZZ_TARGET must be one of:\n");
  for (const plait::FuzzTarget& t : plait::fuzz_targets())
    std::fprintf(stderr, "  %s\n", std::string(t.name).c_str());
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const plait::FuzzTarget& target = chosen();
  try {
    target.run({reinterpret_cast<const char*>(data), size});
  } catch (const plait::Error&) {
  }
  return 0;
}
