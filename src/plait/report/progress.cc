#include "plait/report/progress.h"

#include <unistd.h>

#include <cmath>

#include "plait/base/text.h"
#include "plait/report/table.h"

namespace plait {

namespace {
constexpr double kLineSeconds = 10, kRedrawSeconds = 0.1;
constexpr int kBarWidth = 14;
}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::lround(std::max(0.0, seconds)));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string progress_bar(int64_t done, int64_t total, int width) {
  const auto full = static_cast<size_t>(total > 0 ? width * done / total : width);
  return "[" + std::string(full, '#') + std::string(static_cast<size_t>(width) - full, '.') + "]";
}

std::string progress_line(const StepReport& r, double seconds_left) {
  const auto digits = std::to_string(r.steps).size();
  return fmt::format(
      "step {:>{}}/{}  loss {:.3f}  rate {:.1e}  norm {:.2f}  {:>6} tokens/s  {} left", r.step,
      digits, r.steps, r.loss, r.learning_rate, r.gradient_norm,
      grouped(std::llround(r.tokens_per_second)), duration_text(seconds_left));
}

Progress::Progress(std::FILE* out)
    : out_(out), terminal_(isatty(fileno(out)) != 0), start_(Clock::now()), last_line_(start_) {}

void Progress::step(const StepReport& r) {
  const auto now = Clock::now();
  auto seconds = [&](Clock::time_point since) {
    return std::chrono::duration<double>(now - since).count();
  };
  const bool first = first_step_ == 0;
  if (first) {
    first_step_ = r.step;
    start_ =
        now - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(r.seconds));
  }
  const auto done = static_cast<double>(r.step - first_step_ + 1);
  const double left = seconds(start_) / done * static_cast<double>(r.steps - r.step);
  const std::string line = progress_line(r, left);
  const bool last = r.step == r.steps;
  if (terminal_) {
    if (first || last || r.validation_loss || seconds(last_line_) >= kRedrawSeconds) {
      fmt::print(out_, "\r\033[K  {} {}", progress_bar(r.step, r.steps, kBarWidth), line);
      last_line_ = now;
    }
    if (last) fmt::print(out_, "\n");
  } else if (first || last || seconds(last_line_) >= kLineSeconds) {
    fmt::print(out_, "  {}\n", line);
    last_line_ = now;
  }
  if (r.validation_loss)
    fmt::print(out_, "{}  step {}: validation loss {:.4f}\n", terminal_ ? "\r\033[K" : "", r.step,
               *r.validation_loss);
  std::fflush(out_);
}

BytesProgress::BytesProgress(std::FILE* out) : out_(out), terminal_(isatty(fileno(out)) != 0) {}

void BytesProgress::show(const std::string& what, int64_t done, int64_t total) {
  const auto now = std::chrono::steady_clock::now();
  const bool fresh = what != what_;
  if (fresh) {
    what_ = what;
    begin_ = now;
  }
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const bool last = done >= total;
  if (terminal_) {
    const double since = std::chrono::duration<double>(now - drawn_).count();
    if (!fresh && !last && since < kRedrawSeconds) return;
    const double left =
        done > 0 ? seconds * static_cast<double>(total - done) / static_cast<double>(done) : 0;
    fmt::print(out_, "\r\033[K  {} {}: {} of {}, {} left", progress_bar(done, total, kBarWidth),
               what, bytes_text(done), bytes_text(total), duration_text(left));
    if (last) fmt::print(out_, "\n");
    drawn_ = now;
  } else if (last) {
    fmt::print(out_, "  {}: {} in {:.1f} s\n", what, bytes_text(total), seconds);
  } else if (fresh) {
    fmt::print(out_, "  {}: {} ...\n", what, bytes_text(total));
  }
  std::fflush(out_);
}

}  // namespace plait
