// Metrics as JSON lines, one object for each line, which a resumed run continues.
//
//   MetricsLog log("run/metrics.jsonl", resumed_step);  // lines of later steps go
//   log.write({{"step", 101}, {"loss", 2.5}});
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace plait {

class MetricsLog {
 public:
  // Without `resumed_step` a new file takes the place of an old one. With it, lines of the old file
  // whose "step" is larger are removed, and a last line that was cut short; all else stays as it
  // is, byte for byte.
  MetricsLog(std::string path, std::optional<int64_t> resumed_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // One line, in the file when this returns. What is not finite becomes null: JSON has no word.
  void write(const nlohmann::ordered_json& line);
  const std::string& path() const { return path_; }
  int64_t kept_lines() const { return kept_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t kept_ = 0;
};

}  // namespace plait
