#include "plait/base/digest.h"

#include <xxhash.h>

namespace plait {

uint64_t digest(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace plait
