#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "plait/io/files.h"
#include "plait/io/safetensors.h"
#include "plait/model/families.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

const std::string kFixtures = PLAIT_SOURCE_DIR "/tests/fixtures/";
constexpr BatchShape kBatch{2, 16};

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = path_beside(testing::TempDir() + "folder_test");
    ASSERT_TRUE(fs::create_directory(folder_));
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string bytes(const std::string& file) const { return read_text(file, 1 << 26); }
  void put(const std::string& file, const std::string& text) const { std::ofstream(file) << text; }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& e : fs::directory_iterator(folder_)) result.push_back(e.path().filename());
    return result;
  }
  std::string folder_;
};

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST_F(FolderTest, SavesTheBytesThatItRead) {
  for (const std::string name : {"llama_tiny", "llama_tiny_tied", "gpt2_tiny"}) {
    const Model m = load_model(kFixtures + name, kBatch, Head::loss);
    const HostTensors parameters = load_parameters(m, kFixtures + name);
    EXPECT_EQ(parameters.size(), m.params.size());
    save_model(m, parameters, path(name));
    for (const char* file : {"/model.safetensors", "/config.json"})
      EXPECT_EQ(bytes(path(name) + file), bytes(kFixtures + name + file)) << name << file;
    save_model(m, parameters, path(name) + "/");  // over the old one
    EXPECT_EQ(load_parameters(load_model(path(name), kBatch, Head::loss), path(name)), parameters);
  }
  EXPECT_EQ(names().size(), 3U);
}

TEST_F(FolderTest, ConvertsAndSaysSo) {
  const Model m = with_dtype(load_model(kFixtures + "gpt2_tiny", kBatch, Head::loss), Dtype::f32);
  const HostTensors parameters = load_parameters(m, kFixtures + "gpt2_tiny");
  EXPECT_EQ(parameters.at("transformer.h.1.attn.k.weight").dtype, Dtype::f32);
  save_model(m, parameters, path("x"));
  EXPECT_NE(bytes(path("x/config.json")).find("\"torch_dtype\": \"float32\""), std::string::npos);
  const SafetensorsFile file(path("x/model.safetensors"));
  EXPECT_EQ(file.find("transformer.h.1.attn.c_attn.weight")->dims, (std::vector<int64_t>{32, 96}));
  EXPECT_EQ(file.find("transformer.h.1.attn.c_attn.weight")->dtype, Dtype::f32);
  const Model again = load_model(path("x"), kBatch, Head::loss);
  EXPECT_EQ(again.dtype, Dtype::f32);
  EXPECT_EQ(load_parameters(again, path("x")), parameters);
}

TEST_F(FolderTest, SlicesAreTheRightOnes) {
  const Model m = load_model(kFixtures + "gpt2_tiny", kBatch, Head::loss);
  const HostTensors parameters = load_parameters(m, kFixtures + "gpt2_tiny");
  const HostTensor fused = SafetensorsFile(kFixtures + "gpt2_tiny/model.safetensors")
                               .read("transformer.h.2.attn.c_attn.weight");
  // v [H, D] row 5, column 3 is [D, 3H] row 3, column 2 * 32 + 5.
  EXPECT_EQ(parameters.at("transformer.h.2.attn.v.weight").at(5 * 32 + 3), fused.at(3 * 96 + 69));
}

TEST_F(FolderTest, TextModels) {
  Model m = load_model("gpt2-tiny", kBatch, Head::loss);
  m.config_json.clear();
  const HostTensors parameters = initial_parameters(m, 7);
  save_model(m, parameters, path("x"));
  EXPECT_FALSE(fs::exists(path("x/config.json")));
  const Model again = load_model(path("x"), kBatch, Head::loss);
  EXPECT_EQ(print_model(again), print_model(m));
  EXPECT_EQ(load_parameters(again, path("x")), parameters);
}

TEST_F(FolderTest, RefusesFilesThatDoNotFit) {
  const std::string from = kFixtures + "llama_tiny";
  const Model m = load_model(from, kBatch, Head::loss);
  const Model other = load_model(kFixtures + "gpt2_tiny", kBatch, Head::loss);
  const std::string error = error_of([&] { load_parameters(other, from); });
  EXPECT_NE(error.find("52 parameters are not in it: transformer.h.0.attn.q.bias"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find(" and 42 more; 39 of its tensors are no parameters: lm_head.weight"),
            std::string::npos)
      << error;
  const Model shape = with_extent(m, "F", 80, 1);
  EXPECT_NE(error_of([&] { load_parameters(shape, from); })
                .find("tensor 'model.layers.0.mlp.down_proj.weight': found f64 [32, 88], expected "
                      "floating-point [32, 80]"),
            std::string::npos);
  put(path("model.safetensors.index.json"), "{}");
  EXPECT_NE(error_of([&] { load_parameters(m, folder_); }).find("sharded safetensors are not sup"),
            std::string::npos);
  EXPECT_NE(error_of([&] { load_parameters(m, path("none")); }).find("cannot open"),
            std::string::npos);
}

TEST_F(FolderTest, RefusesSlicesThatDoNotJoin) {
  const std::string from = kFixtures + "gpt2_tiny";
  Model m = load_model(from, kBatch, Head::loss);
  m.params[m.param_index("transformer.h.0.attn.k.bias")].file.row = 0;  // twice, and a hole
  EXPECT_NE(error_of([&] { load_parameters(m, from); }).find("do not join"), std::string::npos);
}

TEST_F(FolderTest, RefusesToReplaceWhatIsNoModel) {
  const Model m = load_model("llama-tiny", kBatch, Head::loss);
  HostTensors parameters = initial_parameters(m, 7);
  const auto refused = [&](const std::string& folder, const char* words) {
    const std::string error = error_of([&] { save_model(m, parameters, folder); });
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  put(path("note"), "mine");
  refused(folder_, "holds no model");
  refused(path("note"), "it is no folder");
  refused(path("no/where"), "there is no folder");
  refused("", "without a name");
  save_model(m, parameters, path("x"));
  fs::create_directory(path("x/.git"));
  refused(path("x"), "holds the folder '.git'");
  parameters.erase("lm_head.weight");
  parameters["more"] = HostTensor(Dtype::f32, {1});
  refused(path("y"), "1 parameters have no value (lm_head.weight), 1 values are no parameters");
  parameters = initial_parameters(with_dtype(m, Dtype::f64), 7);
  refused(path("y"), "expected f32 [67, 32]");
  EXPECT_EQ(names().size(), 2U);
}

TEST_F(FolderTest, AKillLeavesTheOldOrTheNewModel) {
  const Model m = load_model("llama-tiny", kBatch, Head::loss);
  const HostTensors one = initial_parameters(m, 1), two = initial_parameters(m, 2);
  save_model(m, one, path("x"));
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (;;) {
          save_model(m, two, path("x"));
          save_model(m, one, path("x"));
        }
      } catch (const Error&) {
        _exit(1);
      }
    }
    usleep(static_cast<useconds_t>(500 + 1700 * round));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const HostTensors found = load_parameters(load_model(path("x"), kBatch, Head::loss), path("x"));
    ASSERT_TRUE(found == one || found == two) << "round " << round;
  }
}

}  // namespace
}  // namespace plait
