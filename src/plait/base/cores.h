// The cores that this process may use: as taskset and containers restrict it, which
// std::thread::hardware_concurrency does not regard.
#pragma once

namespace plait {

int usable_cores();  // at least 1

}  // namespace plait
