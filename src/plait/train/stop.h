// Ctrl-C and SIGTERM as a flag: the first asks a loop to end in order, a second one ends the
// process as if nobody had listened.
//
//   StopSignal stop;
//   trainer.run(progress, stop.flag());
//   if (stop.signal() != 0) ...   // which it was
#pragma once

#include <atomic>

namespace plait {

// One at a time; the handlers from before come back when it goes.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  const std::atomic<bool>* flag() const;
  int signal() const;  // 0: none so far
};

}  // namespace plait
