#include "plait/base/error.h"

namespace plait {

void check_failed(const char* condition, const char* file, int line, const std::string& what) {
  throw std::logic_error(
      fmt::format("internal error at {}:{}: '{}' does not hold: {}; please report this", file, line,
                  condition, what));
}

}  // namespace plait
