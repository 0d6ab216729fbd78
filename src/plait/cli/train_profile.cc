#include "plait/cli/train_profile.h"

#include <filesystem>

#include "plait/io/files.h"
#include "plait/report/profile.h"
#include "plait/report/table.h"
#include "plait/report/trace.h"

namespace plait {

namespace {

constexpr std::string_view kProfileHead = "{\n  \"plait\": \"profile\"";

// A file of this flag can be made, or replaces one of its own kind.
void check_file(const char* flag, const std::string& path, std::string_view head) {
  if (path.empty()) return;
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  if (is_folder(path) || !is_folder(folder))
    fail("{} '{}': {}; expected a file in a folder that exists", flag, path,
         is_folder(path) ? "a folder" : fmt::format("there is no folder '{}'", folder));
  if (file_exists(path)) {
    const InputFile file(path);
    std::string found(std::min(head.size(), static_cast<size_t>(file.size())), '\0');
    file.read(0, found.data(), static_cast<int64_t>(found.size()));
    if (!head.starts_with(found))
      fail("{} '{}': another file is there already; remove it, or name another", flag, path);
  }
  try {
    const AtomicFile probe(path);
  } catch (const Error& e) {
    fail("{} '{}': {}", flag, path, e.what());
  }
}

std::string steps_text(int64_t first, int64_t last) {
  return first == last ? fmt::format("step {}", last) : fmt::format("steps {} to {}", first, last);
}

}  // namespace

void TrainProfile::check() const {
  const ProfileConfig& p = o_.profile;
  if (!o_.of_profile.empty() && !averages())
    fail("{}: nothing is profiled; add --profile", o_.of_profile[0]);
  check_file("--profile-json", p.json, kProfileHead);
  check_file("--trace", p.trace, kTraceHead);
  const auto whole = [](const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal();
  };
  const auto differ = [&](const char* flag, const std::string& a, const char* other,
                          const std::string& b) {
    if (!a.empty() && !b.empty() && whole(a) == whole(b))
      fail("{} and {} are both '{}'; give each a file of its own", flag, other, a);
  };
  differ("--trace", p.trace, "--metrics", o_.config.metrics);
  differ("--trace", p.trace, "--profile-json", p.json);
  differ("--profile-json", p.json, "--metrics", o_.config.metrics);
}

void TrainProfile::check_steps() const {
  if (averages() && o_.config.steps < 2)
    fail("--profile: a run of 1 step is all warm-up; needs --steps 2 or more");
}

// The first step of a run is its warm-up.
int64_t TrainProfile::averaged(int64_t done) const {
  const int64_t left = o_.config.steps - done;
  return averages() ? std::min(o_.profile.steps, std::max<int64_t>(0, left - 1)) : 0;
}

std::string TrainProfile::plan(int64_t done) const {
  std::string text;
  const int64_t n = averaged(done), last = o_.config.steps;
  if (averages() && n == 0)
    text += fmt::format("  note: --profile: {} left, and the first of a run is its warm-up\n",
                        last == done ? "no step is" : "one step is");
  if (n > 0) text += fmt::format("  would profile {}\n", steps_text(last - n + 1, last));
  if (!o_.profile.trace.empty())
    text += last == done ? "  note: --trace: no step is left\n"
                         : fmt::format("  would trace step {} in '{}'\n", last, o_.profile.trace);
  return text;
}

nlohmann::ordered_json TrainProfile::facts(int64_t done) const {
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();
  if (const int64_t n = averaged(done); n > 0)
    facts["profiled_steps"] = {o_.config.steps - n + 1, o_.config.steps};
  if (!o_.profile.trace.empty()) facts["trace"] = o_.profile.trace;
  return facts;
}

void TrainProfile::measure(int threads, Dtype dtype) {
  if (!o_.profile.asked()) return;
  limits_ = measure_limits(threads, dtype);
  std::string bf16;
  if (limits_->bf16_flops_per_second > 0)
    bf16 = fmt::format(" ({} in bf16)", rate_text(limits_->bf16_flops_per_second, "FLOP/s"));
  fmt::print("  this machine with {}: {}{}, {}; measured in {:.2f} s\n",
             count_of(threads, "thread"), rate_text(limits_->flops_per_second, "FLOP/s"), bf16,
             rate_text(limits_->bytes_per_second, "B/s"), limits_->seconds);
}

void TrainProfile::begin(Trainer& trainer) {
  first_ = trainer.done() + 1;
  if (!o_.profile.asked()) return;
  const int64_t left = o_.config.steps - trainer.done();
  if (averages() && left < 2)
    fmt::print("  note: --profile: {} left, and the first of a run is its warm-up: no profile\n",
               left == 0 ? "no step is" : "one step is");
  if (!o_.profile.trace.empty() && left == 0)
    fmt::print("  note: --trace: no step is left: no trace\n");
  trainer.keep_times(std::max<int64_t>(averaged(trainer.done()), o_.profile.trace.empty() ? 0 : 1));
}

void TrainProfile::finish(const Trainer& trainer) {
  if (!o_.profile.asked()) return;
  std::deque<StepTimes> steps = trainer.times();
  const int64_t n = std::max<int64_t>(averaged(first_ - 1), 1);
  if (steps.empty()) {
    if (first_ <= o_.config.steps)
      fmt::print("  nothing was profiled or traced: the run ended before {}\n",
                 steps_text(o_.config.steps - n + 1, o_.config.steps));
    return;
  }
  const Programs& programs = trainer.session().programs();
  if (!o_.profile.trace.empty()) {
    write_text(o_.profile.trace, trace_text(programs, steps.back(), *limits_));
    fmt::print("  step {} is traced in '{}'; ui.perfetto.dev shows it\n", steps.back().step,
               o_.profile.trace);
  }
  if (steps.front().step == first_) steps.pop_front();
  if (!averages()) return;
  if (steps.empty()) {
    if (first_ < o_.config.steps) fmt::print("  nothing was profiled: only the warm-up ran\n");
    return;
  }
  const Profile p = profile(programs, steps, *limits_, o_.profile.by_shape);
  if (o_.profile.table) fmt::print("\n{}", profile_table(p));
  if (o_.profile.json.empty()) return;
  nlohmann::ordered_json json = {{"plait", "profile"}};
  json.update(profile_json(p));
  write_text(o_.profile.json, json.dump(2) + "\n");
  fmt::print("  the profile is in '{}'\n", o_.profile.json);
}

}  // namespace plait
