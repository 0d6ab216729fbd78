#include "plait/train/stop.h"

#include <csignal>

namespace plait {

namespace {

std::atomic<bool> stopped{false};
std::atomic<int> signal_number{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  signal_number = number;
  stopped = true;
}

constexpr int kSignals[] = {SIGINT, SIGTERM};
struct sigaction before[2];

}  // namespace

StopSignal::StopSignal() {
  stopped = false;
  signal_number = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &action, &before[i]);
}

StopSignal::~StopSignal() {
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before[i], nullptr);
}

const std::atomic<bool>* StopSignal::flag() const { return &stopped; }
int StopSignal::signal() const { return signal_number; }

}  // namespace plait
