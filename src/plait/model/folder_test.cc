#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
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
  EXPECT_NE(error.find("52 parameters are not in it: transformer.h.0-2.attn.q.bias, "),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("transformer.wte.weight; 38 of its tensors are no parameters: "
                       "model.embed_tokens.weight, model.layers.0-3.input_layernorm.weight"),
            std::string::npos)
      << error;
  const Model shape = with_extent(m, "F", 80, 1);
  EXPECT_NE(error_of([&] { load_parameters(shape, from); })
                .find("tensor 'model.layers.0.mlp.down_proj.weight': found F64 [32, 88], expected "
                      "floating-point [32, 80]"),
            std::string::npos);
  put(path("model.safetensors.index.json"), "{}");
  EXPECT_NE(error_of([&] { load_parameters(m, folder_); }).find("weight_map is missing"),
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
  parameters.erase("lm_head.weight");
  parameters["more"] = HostTensor(Dtype::f32, {1});
  refused(path("y"), "1 parameters have no value (lm_head.weight), 1 values are no parameters");
  parameters = initial_parameters(with_dtype(m, Dtype::f64), 7);
  refused(path("y"), "expected f32 [67, 32]");
  EXPECT_EQ(names().size(), 2U);
}

// A folder with the parameters of `from`, as another program might have written it.
HostTensors file_of(const std::string& from) {
  return SafetensorsFile(from + "/model.safetensors").read_all();
}

void write_files(const std::string& folder, const HostTensors& tensors) {
  std::vector<std::pair<std::string, const HostTensor*>> all;
  for (const auto& [name, tensor] : tensors) all.emplace_back(name, &tensor);
  write_safetensors(folder + "/model.safetensors", all);
}

TEST_F(FolderTest, StoresWhatConfigSaysAndComputesInF32) {
  const std::string from = kFixtures + "llama_tiny";
  std::string config = bytes(from + "/config.json");
  const size_t at = config.find("\"float64\"");
  ASSERT_NE(at, std::string::npos) << config;
  config.replace(at, 9, "\"bfloat16\"");
  put(path("config.json"), config);
  HostTensors stored = file_of(from);
  for (auto& [name, t] : stored) t = convert(t, Dtype::bf16);
  write_files(folder_, stored);

  const Model m = load_model(folder_, kBatch, Head::loss);
  EXPECT_EQ(m.dtype, Dtype::f32);
  FileReport report;
  const HostTensors parameters = load_parameters(m, folder_, &report);
  EXPECT_EQ(parameters.begin()->second.dtype, Dtype::f32);
  EXPECT_EQ(report.tensors, 39);
  EXPECT_EQ(report.text().substr(0, 20), "39 tensors (39 bf16)") << report.text();
  const std::string before = bytes(path("model.safetensors"));
  save_model(m, parameters, folder_);
  EXPECT_EQ(bytes(path("model.safetensors")), before);
  EXPECT_EQ(bytes(path("config.json")), config);

  SaveOptions options;
  options.storage = Dtype::f16;
  save_model(m, parameters, folder_, options);
  EXPECT_NE(bytes(path("config.json")).find("\"float16\""), std::string::npos);
  EXPECT_EQ(SafetensorsFile(path("model.safetensors")).find("model.norm.weight")->type, "F16");
  options.storage = Dtype::i32;
  EXPECT_THROW(save_model(m, parameters, folder_, options), Error);
  // Computed in f64: nothing is rounded away.
  const HostTensors exact = initial_parameters(with_dtype(m, Dtype::f64), 3);
  save_model(with_dtype(m, Dtype::f64), exact, folder_);
  const Model again = load_model(folder_, kBatch, Head::loss);
  EXPECT_EQ(load_parameters(again, folder_), exact);
}

TEST_F(FolderTest, WhatDoesNotFitTheFileIsRefused) {
  const Model m = with_dtype(load_model(kFixtures + "gpt2_tiny", kBatch, Head::loss), Dtype::f32);
  HostTensors parameters = load_parameters(m, kFixtures + "gpt2_tiny");
  SaveOptions options;
  options.storage = Dtype::f16;
  save_model(m, parameters, path("x"), options);
  const std::string weights = bytes(path("x/model.safetensors"));
  const std::string config = bytes(path("x/config.json"));

  // A third of a fused tensor that is stored the other way round: named as the file has it.
  HostTensor& k = parameters.at("transformer.h.1.attn.k.weight");
  const int64_t width = k.dims[1];
  k.as<float>()[2 * width + 3] = -7e4F;
  const std::string error = error_of([&] { save_model(m, parameters, path("x"), options); });
  EXPECT_NE(error.find(fmt::format("tensor 'transformer.h.1.attn.c_attn.weight' as f16: element "
                                   "[3, {}] is -70000, expected at most 65504",
                                   k.dims[0] + 2)),
            std::string::npos)
      << error;
  EXPECT_THROW(save_model(m, parameters, path("y"), options), Error);
  EXPECT_EQ(names(), std::vector<std::string>{"x"});  // nothing else is left
  EXPECT_EQ(bytes(path("x/model.safetensors")), weights);
  EXPECT_EQ(bytes(path("x/config.json")), config);

  options.storage = Dtype::bf16;
  save_model(m, parameters, path("x"), options);
  k.as<float>()[0] = NAN;
  for (const Dtype type : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    options.storage = type;
    EXPECT_NE(error_of([&] { save_model(m, parameters, path("x"), options); }).find("is nan"),
              std::string::npos);
  }
}

TEST_F(FolderTest, KeepsTheTypeOfEveryTensor) {
  const std::string from = kFixtures + "llama_tiny";
  put(path("config.json"), bytes(from + "/config.json"));
  HostTensors stored = file_of(from);
  for (auto& [name, t] : stored)
    t = convert(t, name.find("norm") != std::string::npos ? Dtype::f32 : Dtype::bf16);
  write_files(folder_, stored);
  const Model m = load_model(folder_, kBatch, Head::loss);
  FileReport report;
  const HostTensors parameters = load_parameters(m, folder_, &report);
  SaveOptions options;
  options.as_read = &report;
  save_model(m, parameters, path("x"), options);
  EXPECT_EQ(file_of(path("x")), stored);
}

TEST_F(FolderTest, ShardsAndJoins) {
  const std::string from = kFixtures + "gpt2_tiny";
  const Model m = load_model(from, kBatch, Head::loss);
  const HostTensors parameters = load_parameters(m, from);
  SaveOptions options;
  options.max_shard_bytes = 100'000;
  save_model(m, parameters, path("x"), options);
  EXPECT_FALSE(file_exists(path("x/model.safetensors")));
  EXPECT_TRUE(file_exists(path("x/model-00001-of-00005.safetensors")));
  FileReport report;
  EXPECT_EQ(load_parameters(m, path("x"), &report), parameters);
  EXPECT_EQ(report.files.size(), 5U);
  EXPECT_TRUE(report.notes.empty());
  save_model(m, parameters, path("x"));  // the shards of before go
  EXPECT_FALSE(file_exists(path("x/model-00001-of-00005.safetensors")));
  EXPECT_FALSE(file_exists(path("x/model.safetensors.index.json")));
  EXPECT_EQ(bytes(path("x/model.safetensors")), bytes(from + "/model.safetensors"));
}

TEST_F(FolderTest, ReadsGpt2AsPublished) {
  const std::string from = kFixtures + "gpt2_tiny", prefix = "transformer.";
  put(path("config.json"), bytes(from + "/config.json"));
  HostTensors stored;
  for (auto& [name, t] : file_of(from)) stored[name.substr(prefix.size())] = t;
  HostTensors published = stored;
  for (int layer = 0; layer < 3; ++layer) {
    published[fmt::format("h.{}.attn.bias", layer)] = HostTensor(Dtype::f32, {1, 1, 64, 64});
    published[fmt::format("h.{}.attn.masked_bias", layer)] = HostTensor(Dtype::f32, {});
  }
  write_files(folder_, published);
  const Model m = load_model(folder_, kBatch, Head::loss);
  FileReport report;
  const HostTensors parameters = load_parameters(m, folder_, &report);
  EXPECT_EQ(parameters, load_parameters(load_model(from, kBatch, Head::loss), from));
  EXPECT_TRUE(report.without_prefix);
  EXPECT_EQ(report.ignored.size(), 6U);
  EXPECT_NE(report.text().find("6 tensors are no parameters and not needed: h.0-2.attn.bias, "
                               "h.0-2.attn.masked_bias\n"),
            std::string::npos)
      << report.text();
  SaveOptions options;
  options.as_read = &report;
  save_model(m, parameters, path("x"), options);
  EXPECT_EQ(file_of(path("x")), stored);
  save_model(m, parameters, path("y"));
  EXPECT_EQ(bytes(path("y/model.safetensors")), bytes(from + "/model.safetensors"));

  published["h.0.attn.other"] = HostTensor(Dtype::f32, {});
  write_files(folder_, published);
  EXPECT_NE(error_of([&] {
              load_parameters(m, folder_);
            }).find("1 of its tensors are no parameters: h.0.attn.other"),
            std::string::npos);
}

TEST_F(FolderTest, AStoredCopyOfATiedEmbedding) {
  const std::string from = kFixtures + "llama_tiny_tied";
  put(path("config.json"), bytes(from + "/config.json"));
  HostTensors stored = file_of(from);
  ASSERT_EQ(stored.count("lm_head.weight"), 0U);
  stored["lm_head.weight"] = stored.at("model.embed_tokens.weight");
  write_files(folder_, stored);
  const Model m = load_model(folder_, kBatch, Head::loss);
  FileReport report;
  const HostTensors parameters = load_parameters(m, folder_, &report);
  EXPECT_EQ(report.tied, std::vector<std::string>{"lm_head.weight"});
  SaveOptions options;
  options.as_read = &report;
  save_model(m, parameters, path("x"), options);
  EXPECT_EQ(file_of(path("x")), stored);
  save_model(m, parameters, path("y"));
  EXPECT_EQ(bytes(path("y/model.safetensors")), bytes(from + "/model.safetensors"));

  stored["lm_head.weight"].data.back() ^= std::byte{1};
  write_files(folder_, stored);
  EXPECT_NE(error_of([&] {
              load_parameters(m, folder_);
            }).find("is no copy of 'model.embed_tokens.weight'"),
            std::string::npos);
  // An untied model needs its head, and is not given the embedding instead.
  const Model untied = load_model(kFixtures + "llama_tiny", kBatch, Head::loss);
  stored = file_of(kFixtures + "llama_tiny");
  stored.erase("lm_head.weight");
  write_files(folder_, stored);
  EXPECT_NE(error_of([&] {
              load_parameters(untied, folder_);
            }).find("1 parameters are not in it: lm_head.weight"),
            std::string::npos);
}

TEST_F(FolderTest, CarriesTheOtherFilesOfAModel) {
  const Model m = load_model("llama-tiny", kBatch, Head::loss);
  const HostTensors parameters = initial_parameters(m, 7);
  fs::create_directory(path("base"));
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
        "generation_config.json", "chat_template.jinja", "vocab.json", "merges.txt", "LICENSE",
        "README.md", "config.json", "model.safetensors", "pytorch_model-00001-of-00002.bin",
        "pytorch_model.bin.index.json", "consolidated.00.pth", "model-00007-of-00009.safetensors"})
    put(path("base/") + name, std::string("base ") + name);
  fs::create_symlink(path("base/LICENSE"), path("base/NOTICE"));  // as downloads are kept
  fs::create_directory(path("base/original"));
  SaveOptions options;
  options.carry = path("base");
  save_model(m, parameters, path("x"), options);
  std::vector<std::string> found;
  for (const auto& e : fs::directory_iterator(path("x"))) found.push_back(e.path().filename());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector<std::string>{
                       "LICENSE", "NOTICE", "README.md", "chat_template.jinja", "config.json",
                       "generation_config.json", "merges.txt", "model.safetensors",
                       "special_tokens_map.json", "tokenizer.json", "tokenizer.model",
                       "tokenizer_config.json", "vocab.json"}));
  EXPECT_EQ(bytes(path("x/NOTICE")), "base LICENSE");
  EXPECT_EQ(load_parameters(load_model(path("x"), kBatch, Head::loss), path("x")), parameters);
  options.carry = path("none");
  EXPECT_NE(error_of([&] { save_model(m, parameters, path("y"), options); }).find("is no folder"),
            std::string::npos);
  EXPECT_EQ(names().size(), 2U);
}

TEST_F(FolderTest, AnotherTokenizerTakesThePlaceOfTheCarriedOne) {
  const Model m = load_model("llama-tiny", kBatch, Head::loss);
  fs::create_directory(path("base"));
  for (const char* name :
       {"tokenizer.json", "vocab.json", "chat_template.jinja", "generation_config.json", "LICENSE"})
    put(path("base/") + name, "base");
  SaveOptions options;
  options.carry = path("base");
  options.tokenizer = {{"tokenizer.json", "another"}};
  save_model(m, initial_parameters(m, 7), path("x"), options);
  EXPECT_EQ(bytes(path("x/tokenizer.json")), "another");
  EXPECT_FALSE(fs::exists(path("x/vocab.json")));
  EXPECT_FALSE(fs::exists(path("x/chat_template.jinja")));
  EXPECT_EQ(bytes(path("x/generation_config.json")), "base");
  EXPECT_EQ(bytes(path("x/LICENSE")), "base");
}

TEST_F(FolderTest, KeepsWhatTheUserKeepsThere) {
  const Model m = load_model("llama-tiny", kBatch, Head::loss);
  const HostTensors one = initial_parameters(m, 1), two = initial_parameters(m, 2);
  save_model(m, one, path("x"));
  put(path("x/README.md"), "mine");
  put(path("x/tokenizer.json"), "old");
  fs::create_directories(path("x/.git/objects/ab"));
  put(path("x/.git/objects/ab/cd"), "object");
  fs::create_symlink("nowhere", path("x/link"));
  fs::permissions(path("x"), fs::perms::owner_all);
  std::ofstream open_file(path("x/metrics.jsonl"));
  fs::create_directory(path("base"));
  put(path("base/README.md"), "base");
  put(path("base/tokenizer.json"), "new");
  SaveOptions options;
  options.carry = path("base");
  save_model(m, two, path("x"), options);
  open_file << "still the same file\n" << std::flush;
  EXPECT_EQ(bytes(path("x/metrics.jsonl")), "still the same file\n");
  EXPECT_EQ(bytes(path("x/README.md")), "mine");
  EXPECT_EQ(bytes(path("x/tokenizer.json")), "new");
  EXPECT_EQ(bytes(path("x/.git/objects/ab/cd")), "object");
  EXPECT_EQ(fs::read_symlink(path("x/link")), "nowhere");
  EXPECT_EQ(fs::status(path("x")).permissions(), fs::perms::owner_all);
  EXPECT_EQ(load_parameters(load_model(path("x"), kBatch, Head::loss), path("x")), two);
  EXPECT_EQ(names().size(), 2U);

  // A run's folder, which holds no model yet.
  fs::create_directories(path("run/checkpoints/step-00000001"));
  put(path("run/checkpoints/step-00000001/manifest.json"), "{}");
  EXPECT_THROW(check_save_target(path("run")), Error);
  options.run_folder = true;
  EXPECT_EQ(check_save_target(path("run"), options), path("run"));
  save_model(m, one, path("run"), options);
  EXPECT_EQ(bytes(path("run/checkpoints/step-00000001/manifest.json")), "{}");
  EXPECT_EQ(load_parameters(load_model(path("run"), kBatch, Head::loss), path("run")), one);
}

TEST_F(FolderTest, AKillLeavesTheOldOrTheNewModel) {
  const Model m = load_model("llama-tiny", kBatch, Head::loss);
  const HostTensors one = initial_parameters(m, 1), two = initial_parameters(m, 2);
  save_model(m, one, path("x"));
  put(path("x/notes.txt"), "mine");
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
    ASSERT_EQ(bytes(path("x/notes.txt")), "mine");
  }
}

}  // namespace
}  // namespace plait
