#include "plait/io/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "plait/base/error.h"
#include "plait/base/rng.h"
#include "plait/io/files.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

// States whose every element follows from the step.
HostTensors states(int64_t step) {
  HostTensors all;
  for (const char* name : {"m/a", "param/a", "param/b", "param/größe"}) {
    HostTensor t(name[0] == 'm' ? Dtype::f64 : Dtype::f32, {8, 5});
    for (size_t i = 0; i < t.data.size(); ++i)
      t.data[i] =
          static_cast<std::byte>(random_bits(static_cast<uint64_t>(step), Stream::test, i, 3));
    all[name] = std::move(t);
  }
  all["param/none"] = HostTensor(Dtype::bf16, {0, 3});
  return all;
}

nlohmann::ordered_json trainer(int64_t step) {
  return {{"tokens", step * 1000}, {"best", 1.0 / 3}, {"a", {{"z", 1}, {"b", "ä"}}}};
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override { folder_ = path_beside(testing::TempDir() + "checkpoint_test"); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& e : fs::directory_iterator(folder_)) result.push_back(e.path().filename());
    std::sort(result.begin(), result.end());
    return result;
  }
  void save(int64_t keep, std::initializer_list<int64_t> steps) const {
    CheckpointStore store(folder_, keep);
    for (const int64_t s : steps) store.save(s, trainer(s), states(s));
  }
  // Changes one byte.
  void damage(const std::string& name, int64_t at) const {
    std::fstream f(path(name), std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(at);
    const int byte = f.get();
    f.seekp(at);
    f.put(static_cast<char>(byte ^ 1));
  }
  std::string error_of_load(int64_t step) const {
    try {
      CheckpointReader(folder_).load(step);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
  std::string folder_;
};

const std::string kFirst = "step-00000002/states-00001-of-00001.safetensors";

TEST_F(CheckpointTest, LoadsWhatWasSaved) {
  save(0, {1, 2, 123456789012});
  const CheckpointReader reader(folder_);
  EXPECT_EQ(reader.steps(), (std::vector<int64_t>{1, 2, 123456789012}));
  for (const int64_t s : reader.steps()) {
    const Checkpoint c = reader.load(s);
    EXPECT_EQ(c.step, s);
    EXPECT_EQ(c.tensors, states(s));
    EXPECT_EQ(c.trainer.dump(), trainer(s).dump());  // in the same order
  }
  EXPECT_EQ(reader.load_latest()->step, 123456789012);
  EXPECT_EQ(error_of_load(3), "'" + path("step-00000003") + "': there is no such checkpoint");
}

TEST_F(CheckpointTest, AnEmptyOrAbsentFolderHasNone) {
  EXPECT_FALSE(CheckpointReader(folder_).load_latest());
  EXPECT_TRUE(CheckpointReader(folder_).steps().empty());
  CheckpointStore store(folder_ + "/deep/er", 1);
  EXPECT_FALSE(store.load_latest());
}

TEST_F(CheckpointTest, SplitsIntoFiles) {
  CheckpointStore store(folder_, 0, 400);
  store.save(5, trainer(5), states(5));
  EXPECT_EQ(store.load(5).tensors, states(5));
  EXPECT_EQ(store.inspect(5, true).manifest.files.size(), 3U);
  store.save(6, trainer(6), {});  // no state at all
  EXPECT_TRUE(store.load(6).tensors.empty());
}

TEST_F(CheckpointTest, KeepsTheLastOnes) {
  save(3, {1, 2, 3, 4, 5});
  EXPECT_EQ(CheckpointReader(folder_).steps(), (std::vector<int64_t>{3, 4, 5}));
  save(0, {6});
  EXPECT_EQ(CheckpointReader(folder_).steps(), (std::vector<int64_t>{3, 4, 5, 6}));
  fs::remove(path("step-00000006/manifest.json"));  // does not count as one of the last
  save(2, {7});
  EXPECT_EQ(CheckpointReader(folder_).steps(), (std::vector<int64_t>{5, 7}));
  save(1, {4});  // back in time: what was just saved stays
  EXPECT_EQ(CheckpointReader(folder_).steps(), (std::vector<int64_t>{4, 7}));
  CheckpointStore(folder_, 1).discard_after(4);
  EXPECT_EQ(names(), (std::vector<std::string>{".lock", "step-00000004"}));
}

TEST_F(CheckpointTest, SavingAStepAgainReplacesIt) {
  save(0, {2});
  damage(kFirst, 300);
  CheckpointStore store(folder_, 0);
  store.save(2, {{"again", true}}, states(7));
  EXPECT_EQ(store.load(2).tensors, states(7));
  EXPECT_EQ(names(), (std::vector<std::string>{".lock", "step-00000002"}));
}

TEST_F(CheckpointTest, NamesDamageAndFallsBack) {
  save(0, {1, 2});
  const auto files = [&] { return CheckpointReader(folder_).inspect(2, true); };
  const std::string expected = files().manifest.files[0].checksum;
  const int64_t size = InputFile(path(kFirst)).size();
  for (const int64_t at : {int64_t{0}, int64_t{9}, int64_t{60}, size / 2, size - 1}) {
    damage(kFirst, at);
    const std::string found = file_digest(InputFile(path(kFirst)));
    EXPECT_EQ(error_of_load(2), fmt::format("'{}': checksum {}, expected {}; the file is damaged",
                                            path(kFirst), found, expected));
    EXPECT_NE(files().damage, "");
    EXPECT_EQ(CheckpointReader(folder_).inspect(2, false).damage, "");
    damage(kFirst, at);
    EXPECT_EQ(files().damage, "");
  }
  damage(kFirst, 500);
  std::vector<std::string> notes;
  EXPECT_EQ(CheckpointReader(folder_).load_latest(&notes)->tensors, states(1));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].find("the checkpoint of step 2 is left out: '" + path(kFirst)), 0U)
      << notes[0];
}

TEST_F(CheckpointTest, EveryByteOfTheManifestCounts) {
  save(0, {2});
  const std::string name = "step-00000002/manifest.json";
  const std::string whole = read_text(path(name), 1 << 20);
  for (size_t i = 0; i < whole.size(); ++i) {
    if (std::isspace(static_cast<unsigned char>(whole[i])) != 0) continue;
    damage(name, static_cast<int64_t>(i));
    EXPECT_NE(error_of_load(2), "accepted") << "byte " << i << " of " << whole;
    damage(name, static_cast<int64_t>(i));
  }
  EXPECT_EQ(error_of_load(2), "accepted");
}

TEST_F(CheckpointTest, RefusesFoldersThatAreNotWhole) {
  save(0, {2});
  const auto expect = [&](const std::string& words) {
    EXPECT_NE(error_of_load(2).find(words), std::string::npos) << error_of_load(2);
    EXPECT_TRUE(CheckpointReader(folder_).steps().empty());
    std::vector<std::string> notes;
    EXPECT_FALSE(CheckpointReader(folder_).load_latest(&notes));
    EXPECT_EQ(notes.size(), 1U);
    fs::remove_all(path("step-00000002"));
    save(0, {2});
  };
  fs::resize_file(path(kFirst), 100);
  expect("100 bytes, expected ");
  fs::remove(path(kFirst));
  expect("cannot open");
  fs::remove(path("step-00000002/manifest.json"));
  expect("cannot open");
  std::ofstream(path("step-00000002/manifest.json")) << "{}";
  expect("format is missing");
  fs::rename(path("step-00000002"), path("step-00000003"));
  EXPECT_NE(error_of_load(3).find("the manifest is of step 2"), std::string::npos);
}

TEST(Manifest, RefusesWhatItDoesNotKnow) {
  Manifest m;
  m.step = 3;
  m.saved = "now";
  m.files = {{"a.safetensors", std::string(32, 'a'), 8}};
  m.tensors["x"] = {Dtype::f32, {2}, 0};
  const std::string good = print_manifest(m);
  EXPECT_EQ(parse_manifest(good, "m").checksum, parse_manifest(good, "m").found_checksum);
  const struct {
    const char *from, *to, *words;
  } cases[] = {
      {"plait checkpoint", "other", "format is \"other\""},
      {"\"version\": 1", "\"version\": 2", "version 2, expected 1"},
      {"\"step\": 3", "\"step\": -3", "step is -3"},
      {"\"step\": 3", "\"step\": 3.0", "step is 3.0"},
      {"\"step\": 3", "\"step\": 9223372036854775808", "expected a whole number"},
      {"\"step\": 3,", "", "step is missing"},
      {"\"now\"", "7", "saved is 7"},
      {"a.safetensors", "../a.safetensors", "expected a file beside the manifest"},
      {"a.safetensors", "/a", "expected a file beside the manifest"},
      {"a.safetensors", ".a", "expected a file beside the manifest"},
      {"a.safetensors", "", "expected a file beside the manifest"},
      {"aaaaaaaa", "AAAA", "expected 32 hexadecimal digits"},
      {"f32", "f33", "unknown element type 'f33'"},
      {"\"file\": 0", "\"file\": 1", "file 1, expected one of 1"},
      {"\"file\": 0", "\"file\": \"a\"", "file is \"a\""},
      {"\"bytes\": 8", "\"bytes\": null", "bytes is null"},
  };
  for (const auto& c : cases) {
    std::string text = good;
    const size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from << "\n" << good;
    text.replace(at, std::strlen(c.from), c.to);
    try {
      parse_manifest(text, "m");
      ADD_FAILURE() << c.to << " was accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(c.words), std::string::npos) << e.what();
    }
  }
  std::string huge = good;
  const size_t at = huge.find("2\n");  // the shape
  ASSERT_NE(at, std::string::npos);
  huge.replace(at, 1, "4294967296, 4294967296");
  EXPECT_THROW(parse_manifest(huge, "m"), Error);
}

TEST_F(CheckpointTest, OneProcessSavesInAFolder) {
  const CheckpointStore store(folder_, 0);
  try {
    const CheckpointStore other(folder_, 0);
    ADD_FAILURE() << "two stores have one folder";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              fmt::format("checkpoints in '{}' are being saved by process {}; choose another "
                          "folder, or end it",
                          folder_, getpid()));
  }
}

TEST_F(CheckpointTest, RemovesLeftoversOfTheDeadOnly) {
  save(0, {1});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const std::string dead = fmt::format(".step-00000009.saving-{}-0", child);
  const std::string alive = fmt::format(".step-00000009.saving-{}-0", getppid());
  const std::string mine = ".step-00000009.saving-x-0";
  for (const std::string& name : {dead, alive, mine}) {
    fs::create_directory(path(name));
    std::ofstream(path(name + "/x")) << "x";
  }
  const CheckpointStore store(folder_, 0);
  EXPECT_FALSE(file_exists(path(dead)));
  EXPECT_TRUE(file_exists(path(alive)));
  EXPECT_TRUE(file_exists(path(mine)));
  EXPECT_EQ(store.notes().size(), 2U);
  EXPECT_EQ(store.steps(), std::vector<int64_t>{1});
}

TEST_F(CheckpointTest, AFullDiskLeavesTheOthersAlone) {
  CheckpointStore store(folder_, 1);
  store.save(1, trainer(1), states(1));
  HostTensors big;
  big["param/x"] = HostTensor(Dtype::f64, {100'000});
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{65536, old.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string error;
  try {
    store.save(2, trainer(2), big);
  } catch (const Error& e) {
    error = e.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(error.find("the checkpoint of step 2 was not saved: cannot write '"), 0U) << error;
  EXPECT_NE(error.find("File too large"), std::string::npos) << error;
  EXPECT_EQ(names(), (std::vector<std::string>{".lock", "step-00000001"}));
  EXPECT_EQ(store.load_latest()->tensors, states(1));
}

TEST_F(CheckpointTest, SaysWhereItCannotWrite) {
  EXPECT_THROW(CheckpointStore("", 0), Error);
  EXPECT_THROW(CheckpointStore(folder_, -1), Error);
  EXPECT_THROW(CheckpointStore("/proc/plait", 0), Error);
  std::ofstream(folder_) << "a file";
  EXPECT_THROW(CheckpointStore(folder_, 0), Error);
  EXPECT_THROW(CheckpointStore(folder_ + "/x", 0), Error);
  fs::remove(folder_);
  CheckpointStore store(folder_, 0);
  HostTensors bad;
  bad["a\nb"] = HostTensor(Dtype::f32, {1});
  EXPECT_THROW(store.save(1, {}, bad), Error);
  EXPECT_THROW(store.save(1, "\xff", states(1)), Error);
  EXPECT_THROW(store.save(1, {{"loss", std::nan("")}}, states(1)), Error);
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 100; ++i) deep = nlohmann::ordered_json::array({deep});
  EXPECT_THROW(store.save(1, deep, states(1)), Error);
  EXPECT_THROW(store.save(-1, {}, states(1)), Error);
  EXPECT_EQ(names(), std::vector<std::string>{".lock"});
}

// A child saves step after step, and says of each when it is done.
[[noreturn]] void save_for_ever(const std::string& folder, int64_t from, int pipe) {
  try {
    CheckpointStore store(folder, 2, 500);
    for (int64_t step = from;; ++step) {
      store.save(step, trainer(step), states(step));
      if (::write(pipe, &step, sizeof step) != sizeof step) _exit(2);
    }
  } catch (const std::exception&) {
    _exit(1);
  }
}

TEST_F(CheckpointTest, SurvivesAKillAtAnyMoment) {
  int64_t last = 0;
  for (uint64_t round = 0; round < 50; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(folder_, last + 1, ends[1]);
    ::close(ends[1]);
    int64_t done = 0, step = 0;
    if (round % 2 == 1 && ::read(ends[0], &step, sizeof step) == sizeof step) done = step;
    usleep(static_cast<useconds_t>(random_bits(5, Stream::test, round, 0) % 30'000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "round " << round << ": the child ended by itself";
    while (::read(ends[0], &step, sizeof step) == sizeof step) done = step;
    ::close(ends[0]);

    const CheckpointStore store(folder_, 2, 500);
    std::vector<std::string> notes;
    const auto found = store.load_latest(&notes);
    ASSERT_TRUE(notes.empty()) << "round " << round << ": " << notes[0];
    ASSERT_TRUE(found || std::max(last, done) == 0) << "round " << round;
    if (!found) continue;
    ASSERT_GE(found->step, std::max(last, done));
    ASSERT_LE(found->step, std::max(last, done) + 1);
    ASSERT_EQ(found->tensors, states(found->step));
    ASSERT_EQ(found->trainer, trainer(found->step));
    for (const std::string& name : names())
      ASSERT_TRUE(name == ".lock" || name.rfind("step-", 0) == 0) << name;
    last = found->step;
  }
  EXPECT_GT(last, 0);
}

}  // namespace
}  // namespace plait
