#include "plait/io/tensor_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace plait {
namespace {

namespace fs = std::filesystem;

class TensorFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = path_beside(testing::TempDir() + "tensor_folder_test");
    ASSERT_TRUE(fs::create_directory(folder_));
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  void shard(const std::string& name, const std::vector<std::string>& tensors) const {
    const HostTensor t(Dtype::f32, {2});
    std::vector<std::pair<std::string, const HostTensor*>> all;
    for (const std::string& tensor : tensors) all.emplace_back(tensor, &t);
    write_safetensors(path(name), all);
  }
  std::string error() const {  // of reading everything
    try {
      TensorFolder files(folder_);
      for (const std::string& name : files.names()) files.read(name);
      return files.size_note();
    } catch (const Error& e) {
      return e.what();
    }
  }
  void expect(const std::string& index, const std::string& words) const {
    put(kIndexName, index);
    const std::string found = error();
    if (words.empty()) {
      EXPECT_EQ(found, "") << index;
    }
    EXPECT_NE(found.find(words), std::string::npos) << index << "\n" << found;
  }
  std::string folder_;
};

TEST_F(TensorFolderTest, WritesShardsAndReadsThem) {
  std::map<std::string, HostTensor> all;
  std::vector<SafetensorsSpec> specs;
  for (int i = 0; i < 10; ++i) {
    HostTensor t(i % 3 == 0 ? Dtype::f32 : Dtype::bf16, {i, 3});
    for (size_t k = 0; k < t.data.size(); ++k) t.data[k] = static_cast<std::byte>(i + 7 * k);
    const std::string name = fmt::format("layers.{}.w", i);
    specs.push_back({name, t.dtype, t.dims});
    all[name] = std::move(t);
  }
  std::reverse(specs.begin(), specs.end());
  const auto value = [&](const SafetensorsSpec& s) { return all.at(s.name); };
  for (const int64_t most : {int64_t{1}, int64_t{60}, int64_t{100}, int64_t{1} << 40}) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    write_tensor_folder(folder_, specs, most, value);
    TensorFolder files(folder_);
    EXPECT_EQ(files.names().size(), 10U);
    for (const auto& [name, t] : all) EXPECT_EQ(files.read(name), t) << name;
    EXPECT_EQ(files.size_note(), "");
    for (const auto& entry : fs::directory_iterator(folder_))
      EXPECT_TRUE(is_tensor_file(entry.path().filename().string())) << entry.path();
    EXPECT_EQ(file_exists(path(kWeightsName)), most > 1000);
    for (const std::string& shard : files.opened()) {
      const SafetensorsFile f(path(shard));
      int64_t bytes = 0;
      for (const SafetensorsEntry& e : f.entries()) {
        bytes += e.end - e.begin;
        EXPECT_EQ(e.begin % (e.dtype == Dtype::f32 ? 4 : 2), 0);  // aligned, types mixed or not
      }
      EXPECT_TRUE(bytes <= most || f.entries().size() == 1);
    }
  }
  EXPECT_THROW(write_tensor_folder(folder_, specs, 0, value), Error);
}

TEST_F(TensorFolderTest, OpensOnlyWhatIsAskedFor) {
  shard("a.safetensors", {"x"});
  put("b.safetensors", "this is no safetensors file");
  put(kIndexName, R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})");
  TensorFolder files(folder_);
  EXPECT_TRUE(files.opened().empty());
  EXPECT_EQ(files.read("x").dims[0], 2);
  EXPECT_EQ(files.opened(), std::vector<std::string>{"a.safetensors"});
  EXPECT_THROW(files.read("y"), Error);
  EXPECT_THROW(files.read("z"), Error);
}

TEST_F(TensorFolderTest, RefusesABadIndex) {
  shard("a.safetensors", {"x", "y"});
  shard("b.safetensors", {"z"});
  const std::string a = R"("x": "a.safetensors", "y": "a.safetensors")";
  const auto map = [](const std::string& entries) { return "{\"weight_map\": {" + entries + "}}"; };
  expect(map(a + R"(, "z": "b.safetensors")"), "");
  expect("", "not JSON");
  expect("[]", "expected a JSON object");
  expect("{}", "weight_map is missing");
  expect(R"({"weight_map": []})", "weight_map is []");
  expect(map(""), "weight_map is {}");
  expect(map(R"("x\u001b[2J": "a.safetensors")"), "the name contains a control character");
  expect(map(R"("": "a.safetensors")"), "the name is empty");
  expect(map(R"("x": 1)"), "tensor \"x\" is in 1");
  expect(map(R"("x": "../a.safetensors")"), "is a path");
  expect(map(R"("x": "/etc/a.safetensors")"), "is a path");
  expect(map(R"("x": "sub\\a.safetensors")"), "is a path");
  expect(map(R"("x": "..safetensors")"), "begins with '.'");
  expect(map(R"("x": "a\u0000.safetensors")"), "control character");
  expect(map(R"("x": "/etc/passwd")"), "does not end in .safetensors");
  expect(map(R"("x": ".safetensors")"), "does not end in .safetensors");
  expect(map(R"("x": "c.safetensors")"), "there is no file 'c.safetensors'");
  expect(map(a + R"(, "x": "b.safetensors")"), "'x' stands twice");
  expect(map(a + R"(, "q": "a.safetensors", "z": "b.safetensors")"), "tensor 'q' is not in it");
  expect(map(a + R"(, "z": "a.safetensors")"), "tensor 'z' is not in it");
  expect(map(R"("x": "a.safetensors", "y": "b.safetensors")"), "that it is in 'b.safetensors'");
  expect(map(R"("x": "a.safetensors")"), "tensor 'y': the index does not list it");
  const std::string whole = R"("weight_map": {)" + a + R"(, "z": "b.safetensors"}})";
  expect(R"({"metadata": 1, )" + whole, "metadata is 1");
  for (const char* size : {"-1", "1.5", "\"24\"", "1e300", "null"})
    expect(fmt::format(R"({{"metadata": {{"total_size": {}}}, )", size) + whole, "total_size is");
  expect(R"({"metadata": {"total_size": 24.0}, )" + whole, "");
  expect(R"({"metadata": {"total_size": 25}, )" + whole, "25 and the shards hold 24 bytes");
  expect(R"({"metadata": {"x": [[[[[[[[1]]]]]]]]}, )" + whole, "nested more than 8 deep");
}

TEST_F(TensorFolderTest, ASharedNameInTwoShardsIsRefused) {
  shard("a.safetensors", {"x", "y"});
  shard("b.safetensors", {"y", "z"});
  expect(R"({"weight_map": {"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"}})",
         "tensor 'y': the index says that it is in 'a.safetensors'");
}

TEST_F(TensorFolderTest, RefusesTwoModelsAndNone) {
  EXPECT_NE(error().find("cannot open"), std::string::npos);
  put("pytorch_model.bin", "");
  EXPECT_NE(error().find("only pytorch_model.bin"), std::string::npos);
  shard(kWeightsName, {"x"});
  EXPECT_EQ(error(), "");
  put(kIndexName, "{}");
  EXPECT_NE(error().find("there are both"), std::string::npos);
}

TEST(TensorFile, NamesOfOurs) {
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
        "model-123456-of-123456.safetensors"})
    EXPECT_TRUE(is_tensor_file(name)) << name;
  for (const char* name : {"", "model-1-of-2.safetensors", "model-00001-of-00002.safetensors.bak",
                           "my-model-00001-of-00002.safetensors", "adapter_model.safetensors",
                           "model-00001-of-.safetensors", "consolidated.safetensors"})
    EXPECT_FALSE(is_tensor_file(name)) << name;
}

}  // namespace
}  // namespace plait
