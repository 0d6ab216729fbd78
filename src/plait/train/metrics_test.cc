#include "plait/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "plait/base/error.h"
#include "plait/io/files.h"

namespace plait {
namespace {

class MetricsTest : public testing::Test {
 protected:
  void SetUp() override { path_ = path_beside(testing::TempDir() + "metrics_test"); }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void put(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::string text() const { return read_text(path_, 1 << 20); }
  std::string resumed(const std::string& old, int64_t step) const {
    put(old);
    MetricsLog log(path_, step);
    return text();
  }
  std::string path_;
};

TEST_F(MetricsTest, WritesLines) {
  put("old\n");
  MetricsLog log(path_, {});
  log.write({{"step", 1}, {"loss", 1.0 / 3}, {"a", std::nan("")}, {"text", "ä\n\xff"}});
  EXPECT_EQ(text(),
            "{\"step\":1,\"loss\":0.3333333333333333,\"a\":null,"
            "\"text\":\"ä\\n\xef\xbf\xbd\"}\n");
  log.write({{"step", 2}});
  EXPECT_EQ(text().substr(text().size() - 11), "{\"step\":2}\n");
}

TEST_F(MetricsTest, ResumesWhereTheCheckpointWas) {
  const std::string a = "{\"step\":1, \"x\" : 1.50}\n", b = "{\"step\":2}\n", c = "{\"step\":3}\n";
  EXPECT_EQ(resumed(a + b + c, 2), a + b);
  EXPECT_EQ(resumed(a + b + c, 3), a + b + c);
  EXPECT_EQ(resumed(a + b + c, 0), "");
  EXPECT_EQ(resumed("", 5), "");
  EXPECT_EQ(resumed(a + b + "{\"step\":3", 9), a + b);  // cut short by a kill
  EXPECT_EQ(resumed(a + "{\"step\":2}", 9), a + b);     // only its newline was lost
  EXPECT_EQ(resumed(a + "{\"step\":2}", 1), a);
  EXPECT_EQ(resumed(a + std::string(20, '\0'), 9), a);          // never reached the disk
  EXPECT_EQ(resumed(a + "what?\n" + b, 9), a + "what?\n" + b);  // not ours to remove
  EXPECT_EQ(resumed("{\"run\":\"x\"}\n" + a + c, 1), "{\"run\":\"x\"}\n" + a);
  EXPECT_EQ(resumed(a + c + b, 2), a + b);  // an evaluation may be logged out of order
}

TEST_F(MetricsTest, AppendsAfterResuming) {
  put("{\"step\":1}\n{\"step\":2}\n");
  MetricsLog log(path_, 1);
  EXPECT_EQ(log.kept_lines(), 1);
  log.write({{"step", 2}, {"again", true}});
  EXPECT_EQ(text(), "{\"step\":1}\n{\"step\":2,\"again\":true}\n");
}

TEST_F(MetricsTest, SaysWhereItCannotWrite) {
  EXPECT_THROW(MetricsLog(path_ + "/no/file", {}), Error);
  std::filesystem::create_directory(path_);
  EXPECT_THROW(MetricsLog(path_, 3), Error);
}

}  // namespace
}  // namespace plait
