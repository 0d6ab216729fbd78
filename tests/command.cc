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

// Reads until the writer is gone; sends the signal, once, when it is time.
std::string read_all(int descriptor, pid_t child, std::optional<Kill> when) {
  std::string text;
  char part[4096];
  bool armed = false;
  Clock::time_point due{};
  for (;;) {
    if (when && !armed && text.find(when->text) != std::string::npos) {
      armed = true;
      due = Clock::now() + std::chrono::milliseconds(when->milliseconds);
    }
    if (armed && Clock::now() >= due) {
      kill(child, when->signal);
      when.reset();
      armed = false;
    }
    pollfd p{descriptor, POLLIN, 0};
    const int ready = poll(&p, 1, armed ? 2 : -1);
    if (ready == 0) continue;
    const ssize_t n = ready < 0 ? -1 : read(descriptor, part, sizeof part);
    if (n <= 0) return text;
    text.append(part, static_cast<size_t>(n));
  }
}

}  // namespace

CommandResult run_plait(const std::vector<std::string>& args, std::optional<Kill> when) {
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
  const int error = posix_spawn(&child, PLAIT_COMMAND, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  CommandResult result;
  if (error == 0) {
    result.out = read_all(ends[0], child, std::move(when));
    int status = 0;
    waitpid(child, &status, 0);
    result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  close(ends[0]);
  if (error != 0) fail("cannot start '{}'", PLAIT_COMMAND);
  return result;
}

}  // namespace plait
