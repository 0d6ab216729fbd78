#include "plait/train/digest_tensors.h"

#include <fmt/format.h>

#include "plait/base/digest.h"

namespace plait {

std::string digest_tensors(const HostTensors& tensors) {
  std::string parts;
  for (const auto& [name, t] : tensors)
    parts += fmt::format("{} {} {:016x}\n", name, info(t.dtype).name,
                         digest({reinterpret_cast<const char*>(t.data.data()), t.data.size()}));
  return fmt::format("{:016x}", digest(parts));
}

}  // namespace plait
