// The program `plait` as a user runs it: a process of its own.
#pragma once

#include <string>
#include <vector>

namespace plait {

struct CommandResult {
  int exit_code = 0;  // 128 + signal when it was killed
  std::string out;    // standard output and error together
};

// Runs `plait ARGS`. When kill_after_ms is not negative, sends `signal` after that time.
CommandResult run_plait(const std::vector<std::string>& args, int kill_after_ms = -1,
                        int signal = 9);

}  // namespace plait
