#include "command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "plait/base/error.h"

extern char** environ;

namespace plait {

namespace {

using Clock = std::chrono::steady_clock;

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

// Reads until the writer is gone; at `end` sends the signal, once.
std::string read_all(int descriptor, pid_t child, bool kills, Clock::time_point end, int signal) {
  std::string text;
  char part[4096];
  for (;;) {
    pollfd p{descriptor, POLLIN, 0};
    const int ready = poll(&p, 1, kills ? milliseconds_until(end) : -1);
    if (ready == 0) {
      kill(child, signal);
      kills = false;
      continue;
    }
    const ssize_t n = ready < 0 ? -1 : read(descriptor, part, sizeof part);
    if (n <= 0) return text;
    text.append(part, static_cast<size_t>(n));
  }
}

}  // namespace

CommandResult run_plait(const std::vector<std::string>& args, int kill_after_ms, int signal) {
  std::vector<char*> argv = {const_cast<char*>(PLAIT_COMMAND)};
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  pid_t child = 0;
  const auto end = Clock::now() + std::chrono::milliseconds(std::max(0, kill_after_ms));
  const int error = posix_spawn(&child, PLAIT_COMMAND, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  CommandResult result;
  if (error == 0) {
    result.out = read_all(ends[0], child, kill_after_ms >= 0, end, signal);
    int status = 0;
    waitpid(child, &status, 0);
    result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  close(ends[0]);
  if (error != 0) fail("cannot start '{}'", PLAIT_COMMAND);
  return result;
}

}  // namespace plait
