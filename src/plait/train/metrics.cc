#include "plait/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "plait/base/error.h"
#include "plait/io/files.h"

namespace plait {

using nlohmann::json;

namespace {

// What to do with one line of an earlier run.
enum class Verdict : uint8_t { keep, later, broken };

Verdict verdict(const std::string& line, int64_t resumed_step) {
  const json value = json::parse(line, nullptr, false);
  if (value.is_discarded()) return Verdict::broken;
  if (!value.is_object() || !value.contains("step") || !value["step"].is_number())
    return Verdict::keep;
  return value["step"].get<double>() > static_cast<double>(resumed_step) ? Verdict::later
                                                                         : Verdict::keep;
}

// Writes the file anew without the lines that the resumed run will write again.
int64_t cut(const std::string& path, int64_t resumed_step) {
  std::ifstream old(path, std::ios::binary);
  if (!old) fail("cannot open '{}': {}", path, std::generic_category().message(errno));
  AtomicFile fresh(path);
  int64_t kept = 0;
  std::string line, broken;  // a broken line is dropped only if it is the last
  while (std::getline(old, line)) {
    const Verdict v = verdict(line, resumed_step);
    if (v == Verdict::later) continue;
    fresh.write(broken.data(), broken.size());
    broken.clear();
    line += '\n';
    if (v == Verdict::broken) {
      broken = line;
      continue;
    }
    fresh.write(line.data(), line.size());
    ++kept;
  }
  if (old.bad()) fail("cannot read '{}'", path);
  fresh.commit();
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(std::string path, std::optional<int64_t> resumed_step)
    : path_(std::move(path)) {
  int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  if (!resumed_step)
    flags |= O_TRUNC;
  else if (file_exists(path_))
    kept_ = cut(path_, *resumed_step);
  descriptor_ = ::open(path_.c_str(), flags, 0666);
  if (descriptor_ < 0) fail("cannot open '{}': {}", path_, std::generic_category().message(errno));
}

MetricsLog::~MetricsLog() { ::close(descriptor_); }

void MetricsLog::write(const nlohmann::ordered_json& line) {
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(descriptor_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("cannot write '{}': {}", path_, std::generic_category().message(errno));
    done += static_cast<size_t>(n);
  }
}

}  // namespace plait
