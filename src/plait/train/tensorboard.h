// TensorBoard event files, by hand: TFRecord framing around Event messages in protobuf's wire
// format. One file for each start of a run; TensorBoard joins those of a folder.
//
//   TensorBoardWriter board("run/tensorboard");
//   board.scalar("loss/train", step, loss);
//   board.text("sample", step, "Once upon a time");
//   board.flush();  // once for each step
//
// A run that resumes from a checkpoint says so, and TensorBoard forgets what the run before had
// written of later steps. Throws Error when the file cannot be written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plait {

// CRC-32C (Castagnoli) of the bytes.
uint32_t crc32c(std::string_view bytes);

class TensorBoardWriter {
 public:
  // Creates the folder if need be. `resumed_step`: the last step that is still part of the run.
  explicit TensorBoardWriter(const std::string& folder, std::optional<int64_t> resumed_step = {});
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  void scalar(std::string_view tag, int64_t step, double value);  // kept as a 32-bit float
  void text(std::string_view tag, int64_t step, std::string_view text);
  void flush();  // what was added since goes to the file
  const std::string& path() const { return path_; }

 private:
  void record(const std::string& event);
  std::string path_, waiting_;
  int descriptor_ = -1;
};

}  // namespace plait
