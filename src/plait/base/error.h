// The one exception type of plait, and the check for broken invariants.
//
// Whatever input, a file, a peer or memory can cause is thrown as Error and caught at the command
// or rank boundary. Wording: lower case; subject, found, expected, remedy:
//
//   fail("tensor '{}': {} rows over {} ranks; needs a multiple of {}", name, rows, ranks, unit);
//
// A broken invariant of our own is PLAIT_CHECK; it survives release builds.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace plait {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& what);

}  // namespace plait

#define PLAIT_CHECK(condition, ...)                                                      \
  do {                                                                                   \
    if (!(condition))                                                                    \
      ::plait::check_failed(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
