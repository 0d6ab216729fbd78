#include "plait/train/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "plait/base/error.h"
#include "plait/io/files.h"

namespace plait {
namespace {

template <class T>
T at(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// The events of a file, with both checksums of each record checked.
std::vector<std::string> events(const std::string& path) {
  const std::string file = read_text(path, 1 << 20);
  const auto masked = [](uint32_t c) { return ((c >> 15) | (c << 17)) + 0xa282ead8U; };
  std::vector<std::string> result;
  for (size_t next = 0; next < file.size();) {
    const auto length = at<uint64_t>(file, next);
    EXPECT_EQ(at<uint32_t>(file, next + 8), masked(crc32c({file.data() + next, 8})));
    result.push_back(file.substr(next + 12, length));
    EXPECT_EQ(at<uint32_t>(file, next + 12 + length), masked(crc32c(result.back())));
    next += 16 + length;
  }
  return result;
}

class TensorBoardTest : public testing::Test {
 protected:
  void SetUp() override { folder_ = path_beside(testing::TempDir() + "tensorboard_test"); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST(Crc32c, KnownValues) {  // RFC 3720, B.4
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST_F(TensorBoardTest, WritesEventsByteForByte) {
  TensorBoardWriter board(folder_ + "/a/b");
  board.scalar("loss", 300, 1.5);
  board.text("sample", 1, "hi");
  EXPECT_EQ(events(board.path()).size(), 1U);  // nothing before flush() but the version
  board.flush();
  const auto all = events(board.path());
  ASSERT_EQ(all.size(), 3U);
  // After the time (field 1, nine bytes): what protobuf makes of the same messages.
  EXPECT_EQ(all[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  EXPECT_EQ(all[1].substr(9), std::string("\x10\xac\x02"
                                          "\x2a\x0d\x0a\x0b"
                                          "\x0a\x04loss"
                                          "\x15\x00\x00\xc0\x3f",
                                          18));
  EXPECT_EQ(all[2].substr(9), std::string("\x10\x01"
                                          "\x2a\x22\x0a\x20"
                                          "\x0a\x06sample"
                                          "\x4a\x08\x0a\x06\x0a\x04text"
                                          "\x42\x0c\x08\x07\x12\x04\x12\x02\x08\x01\x42\x02hi",
                                          38));
  EXPECT_GT(at<double>(all[1], 1), 1.7e9);
}

TEST_F(TensorBoardTest, AResumedRunStartsAnotherFile) {
  const TensorBoardWriter first(folder_), second(folder_, 41);
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(events(second.path())[1].substr(9), "\x10\x2a\x3a\x02\x08\x01");
  EXPECT_THROW(TensorBoardWriter("/proc/plait"), Error);
}

}  // namespace
}  // namespace plait
