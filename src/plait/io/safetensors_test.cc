#include "plait/io/safetensors.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace plait {
namespace {

namespace fs = std::filesystem;

class SafetensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = path_beside(testing::TempDir() + "safetensors_test");
    ASSERT_TRUE(fs::create_directory(folder_));
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string put(const std::string& bytes) const {
    std::ofstream(path("bad.safetensors"), std::ios::binary) << bytes;
    return path("bad.safetensors");
  }

  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_;
};

std::string length_bytes(uint64_t n) {
  std::string s(8, '\0');
  std::memcpy(s.data(), &n, 8);
  return s;
}

// A file of this header and so many bytes of data.
std::string file(const std::string& header, size_t data_bytes) {
  return length_bytes(header.size()) + header + std::string(data_bytes, '\1');
}

// A header with one tensor, given as JSON.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

std::string named(const std::string& json_name) {
  return "{" + json_name + R"(:{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
}

std::string two(const std::string& first, const std::string& second) {
  const std::string open = R"({"dtype":"F32","shape":[1],"data_offsets":)";
  return R"({"a":)" + open + first + R"(},"b":)" + open + second + "}}";
}

std::string error_of(const std::string& path) {
  try {
    SafetensorsFile(path).read_all();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

std::string many_tensors(size_t count) {
  std::string header = "{";
  for (size_t i = 0; i < count; ++i)
    header += fmt::format(R"("{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}},)", i);
  header.back() = '}';
  return header;
}

TEST_F(SafetensorsTest, RefusesEveryKindOfBadFile) {
  const struct {
    const char* what;
    std::string bytes, words;
  } cases[] = {
      {"empty", "", "0 bytes, expected at least 8"},
      {"too short", "1234567", "7 bytes, expected at least 8"},
      {"huge header", length_bytes(100'000'001) + "{}",
       "header of 100000001 bytes, expected at most"},
      {"overflowing header", length_bytes(~uint64_t{0}) + "{}", "header of 18446744073709551615"},
      {"header beyond the file", length_bytes(3) + "{}", "header of 3 bytes in a file of 10"},
      {"empty header", length_bytes(0), "does not begin with '{'"},
      {"space first", file(" {}", 0), "does not begin with '{'"},
      {"array", file("[]", 0), "does not begin with '{'"},
      {"not JSON", file("{\"a\"", 0), "not JSON"},
      {"text after the value", file("{} x", 0), "not JSON"},
      {"zero byte hides the rest", file(std::string("{}\0{}", 5), 0), "zero byte"},
      {"invalid UTF-8", file("{\"\xff\":1}", 0), "not JSON"},
      {"duplicate tensor",
       file(R"({"w":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},)" + named("\"w\"").substr(1),
            4),
       "'w' stands twice"},
      {"duplicate by escape",
       file(R"({"\u0077":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},)" +
                named("\"w\"").substr(1),
            4),
       "'w' stands twice"},
      {"duplicate field",
       file(R"({"w":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}})", 4),
       "'dtype' stands twice"},
      {"duplicate metadata", file(R"({"__metadata__":{"a":"1","a":"2"}})", 0), "'a' stands twice"},
      {"deep JSON", file(R"({"w":{"shape":[[1]]}})", 0), "nested more than 3 deep"},
      {"very deep JSON", file("{\"w\":" + std::string(100'000, '['), 0), "nested more than 3 deep"},
      {"no object", file(R"({"w":3})", 0), "tensor \"w\": found 3, expected a JSON object"},
      {"missing field", file(R"({"w":{"dtype":"F32","shape":[1]}})", 4), "data_offsets is missing"},
      {"further field", file(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":0}})", 4),
       "more fields"},
      {"I64", file(one("I64", "[1]", "[0,8]"), 8), "I64 is not supported; convert"},
      {"F8", file(one("F8_E4M3", "[3]", "[0,3]"), 3), "F8_E4M3 is not supported; convert"},
      {"BF16 of F32's size", file(one("BF16", "[1]", "[0,4]"), 4), "expected 2 for BF16 [1]"},
      {"I64 of I32's size", file(one("I64", "[1]", "[0,4]"), 4), "expected 8 for I64 [1]"},
      {"half a byte", file(one("F4", "[3]", "[0,1]"), 1), "12 bits; needs whole bytes"},
      {"bits overflow", file(one("F6_E2M3", "[4611686018427387904]", "[0,0]"), 0), "does not fit"},
      {"unknown type", file(one("F33", "[1]", "[0,4]"), 4), "unknown element type \"F33\""},
      {"lower case type", file(one("f32", "[1]", "[0,4]"), 4), "unknown element type \"f32\""},
      {"negative size", file(one("F32", "[-1]", "[0,4]"), 4), "shape holds -1"},
      {"negative zero", file(one("F32", "[-0]", "[0,0]"), 0), "shape holds"},
      {"fractional size", file(one("F32", "[1.0]", "[0,4]"), 4), "shape holds 1.0"},
      {"exponent", file(one("F32", "[1e0]", "[0,4]"), 4), "shape holds 1.0"},
      {"text for a size", file(one("F32", "[\"1\"]", "[0,4]"), 4), "shape holds \"1\""},
      {"size of 2^63", file(one("F32", "[9223372036854775808]", "[0,4]"), 4), "shape holds 92233"},
      {"size of 2^64", file(one("F32", "[18446744073709551616]", "[0,4]"), 4), "shape holds 1.84"},
      {"shape no array", file(one("F32", "1", "[0,4]"), 4), "shape is 1, expected an array"},
      {"too many dimensions", file(one("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4), "9 dimensions"},
      {"negative offset", file(one("F32", "[1]", "[-4,0]"), 4), "data_offsets holds -4"},
      {"one offset", file(one("F32", "[1]", "[4]"), 4), "1 data_offsets, expected 2"},
      {"begin after end", file(one("F32", "[1]", "[4,0]"), 4), "begins at 4 and ends before"},
      {"product overflow", file(one("F32", "[4294967296,4294967296,2]", "[0,0]"), 0),
       "does not fit 64 bits"},
      {"byte overflow", file(one("F64", "[2305843009213693952]", "[0,0]"), 0), "does not fit"},
      {"size mismatch", file(one("F32", "[2]", "[0,4]"), 4), "4 bytes of data, expected 8"},
      {"not from 0", file(one("F32", "[1]", "[4,8]"), 8), "begins at byte 4, expected 0"},
      {"hole", file(two("[0,4]", "[8,12]"), 12), "there is a hole before it"},
      {"overlap", file(two("[0,4]", "[2,6]"), 6), "it overlaps the tensor before it"},
      {"same bytes", file(two("[0,4]", "[0,4]"), 4), "it overlaps the tensor before it"},
      {"bytes after", file(one("F32", "[1]", "[0,4]"), 5), "bytes after the last tensor"},
      {"cut short", file(one("F32", "[1]", "[0,4]"), 3), "the file is cut short"},
      {"metadata array", file(R"({"__metadata__":[]})", 0), "__metadata__ is []"},
      {"metadata number", file(R"({"__metadata__":{"a":1}})", 0), "\"a\" is 1, expected a string"},
      {"too many tensors", file(many_tensors(100'002), 0), "more than 100001 names"},
      {"one too many", file(many_tensors(100'001), 0), "100001 tensors, expected at most 100000"},
      {"no name", file(named("\"\""), 4), "the name is empty"},
      {"NUL in a name", file(named(R"("a\u0000b")"), 4), "contains a control character"},
      {"newline in a name", file(named(R"("a\nb")"), 4), "contains a control character"},
      {"absolute name", file(named("\"/etc/passwd\""), 4), "begins with '/'"},
      {"name with ..", file(named("\"a/../b\""), 4), "contains '..'"},
  };
  for (const auto& c : cases) {
    const std::string error = error_of(put(c.bytes));
    EXPECT_NE(error.find(c.words), std::string::npos) << c.what << ": " << error;
    EXPECT_NE(error.find("bad.safetensors"), std::string::npos) << c.what << ": " << error;
  }
}

TEST_F(SafetensorsTest, EveryPrefixOfAFileIsRefused) {
  const std::string whole = file(two("[0,4]", "[4,8]"), 8);
  EXPECT_EQ(error_of(put(whole)), "accepted");
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_NE(error_of(put(whole.substr(0, n))), "accepted");
}

TEST_F(SafetensorsTest, AcceptsHarmlessOddities) {
  EXPECT_EQ(error_of(put(file("{}", 0))), "accepted");
  EXPECT_EQ(error_of(put(file("{}    \n", 0))), "accepted");
  EXPECT_EQ(error_of(put(file(one("F32", "[]", "[0,4]"), 4))), "accepted");     // a scalar
  EXPECT_EQ(error_of(put(file(one("F32", "[3,0]", "[0,0]"), 0))), "accepted");  // no elements
  EXPECT_EQ(error_of(put(file(two("[4,8]", "[0,4]"), 8))), "accepted");         // any order
  EXPECT_EQ(error_of(put(file(one("BF16", "[2]", "[0,4]"), 4))), "accepted");
  EXPECT_EQ(error_of(path("none")),
            "cannot open '" + path("none") + "': No such file or directory");
  EXPECT_NE(error_of(folder_).find("not a regular file"), std::string::npos);
}

HostTensors sample() {
  HostTensors t;
  t["scalar"] = HostTensor(Dtype::f64, {});
  t["scalar"].as<double>()[0] = 0.5;
  t["größe \"x\""] = HostTensor(Dtype::i32, {2, 3});
  for (int i = 0; i < 6; ++i) t["größe \"x\""].as<int32_t>()[i] = i;
  t["none"] = HostTensor(Dtype::f32, {0, 4});
  t["row"] = HostTensor(Dtype::f32, {5});
  for (int i = 0; i < 5; ++i) t["row"].as<float>()[i] = 1.0F / static_cast<float>(i + 1);
  return t;
}

std::vector<std::pair<std::string, const HostTensor*>> pointers(const HostTensors& tensors) {
  std::vector<std::pair<std::string, const HostTensor*>> result;
  for (const auto& [name, tensor] : tensors) result.emplace_back(name, &tensor);
  return result;
}

TEST_F(SafetensorsTest, ReadsWhatItWrites) {
  const HostTensors tensors = sample();
  write_safetensors(path("x"), pointers(tensors), {{"format", "pt"}, {"note", "ä"}});
  const SafetensorsFile file(path("x"));
  EXPECT_EQ(file.read_all(), tensors);
  EXPECT_EQ(file.read("row"), tensors.at("row"));
  EXPECT_EQ(file.metadata().at("note"), "ä");
  EXPECT_EQ(file.find("other"), nullptr);
  EXPECT_THROW(file.read("other"), Error);
  uint64_t length = 0;
  std::memcpy(&length, read_text(path("x"), 1 << 20).data(), 8);
  EXPECT_EQ(length % 8, 0U);
  EXPECT_EQ(files(), 1U);
}

TEST_F(SafetensorsTest, TensorsOfOtherTypesAreSkippedByName) {
  const std::string header = R"({"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
                             R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[4,7]},)"
                             R"("packed":{"dtype":"F4","shape":[2,3],"data_offsets":[7,10]}})";
  const SafetensorsFile f(put(file(header, 10)));
  EXPECT_EQ(f.read("h").as<uint16_t>()[1], 0x0101);
  EXPECT_FALSE(f.find("mask")->dtype);
  EXPECT_EQ(f.find("mask")->type, "BOOL");
  EXPECT_THROW(f.read("mask"), Error);
  EXPECT_THROW(f.read("packed"), Error);
}

TEST_F(SafetensorsTest, TheDigestIsOfTheWholeFile) {
  const HostTensors tensors = sample();
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, t] : tensors) specs.push_back({name, t.dtype, t.dims});
  SafetensorsWriter writer(path("x"), specs);
  for (const auto& [name, t] : tensors) writer.write(t);
  EXPECT_FALSE(file_exists(path("x")));
  writer.commit();
  Digest128 read;
  EXPECT_EQ(SafetensorsFile(path("x")).read_all(&read), tensors);
  EXPECT_EQ(read.text(), writer.file().digest().text());
  EXPECT_EQ(read.text(), file_digest(InputFile(path("x"))));
  EXPECT_EQ(writer.file().bytes(), InputFile(path("x")).size());
}

TEST_F(SafetensorsTest, WriterRefusesWhatTheReaderWould) {
  const HostTensor t(Dtype::f32, {2});
  for (const char* name : {"", "/a", "a..b", "a\nb", "__metadata__", "\xff"})
    EXPECT_THROW(write_safetensors(path("x"), {{name, &t}}), Error) << name;
  EXPECT_THROW(write_safetensors(path("x"), {{"a", &t}, {"a", &t}}), Error);
  EXPECT_EQ(files(), 0U);
}

TEST_F(SafetensorsTest, FailedWritesLeaveNothingBehind) {
  const HostTensor big(Dtype::f64, {100'000});
  write_text(path("x"), "the old content");
  EXPECT_THROW(write_safetensors(path("no/such/folder"), {{"a", &big}}), Error);
  EXPECT_THROW(write_safetensors(folder_, {{"a", &big}}), Error);  // a folder has that name

  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{4096, old.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(write_safetensors(path("x"), {{"a", &big}}), Error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);

  EXPECT_EQ(read_text(path("x"), 100), "the old content");
  EXPECT_EQ(files(), 1U);
  EXPECT_THROW(read_text(path("x"), 3), Error);
}

TEST_F(SafetensorsTest, ReadsTheFixtures) {
  const std::string fixtures = PLAIT_SOURCE_DIR "/tests/fixtures/";
  const HostTensors expected =
      SafetensorsFile(fixtures + "gpt2_tiny/expected.safetensors").read_all();
  EXPECT_EQ(expected.at("logits").dims, (std::vector<int64_t>{192, 67}));
  EXPECT_EQ(expected.at("tokens").dtype, Dtype::i32);
  const SafetensorsFile model(fixtures + "llama_tiny/model.safetensors");
  write_safetensors(path("copy"), pointers(model.read_all()), model.metadata());
  EXPECT_EQ(read_text(path("copy"), 1 << 24), read_text(model.path(), 1 << 24));
}

}  // namespace
}  // namespace plait
