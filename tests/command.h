// The program `plait` as a user runs it: a process of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace plait {

struct CommandResult {
  int exit_code = 0;  // 128 + signal when it was killed
  std::string out;    // standard output and error together
};

// When a process is sent a signal: `milliseconds` after it starts, or after it has printed `text`.
struct Kill {
  int signal = 9;
  int milliseconds = 0;
  std::string text;  // empty: after it starts
};

// Runs `plait ARGS`.
CommandResult run_plait(const std::vector<std::string>& args, std::optional<Kill> kill = {});

}  // namespace plait
