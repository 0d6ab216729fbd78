#include "plait/model/adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plait/io/files.h"
#include "plait/io/safetensors.h"
#include "plait/model/families.h"

namespace plait {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Adapter : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/adapter_test";
    fs::remove_all(folder_);
    LoraConfig c;
    c.rank = 2;
    c.targets = {"c_attn", "c_fc"};
    model_ = with_lora(load_model("gpt2-tiny", {2, 12}, Head::loss), c);
    parameters_ = initial_parameters(model_, 3);
    for (const LoraTarget& t : lora_targets(model_)) {
      HostTensor& b = parameters_.at(model_.params[t.b].name);
      for (int64_t i = 0; i < b.elements(); ++i)
        b.as<float>()[i] = static_cast<float>(t.b) + static_cast<float>(i) / 64;
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const char* name) const { return folder_ + "/" + name; }
  Json config() const { return Json::parse(read_text(file("adapter_config.json"), 1 << 20)); }
  template <class F>
  static std::string error_of(F f) {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
  // What load_adapter_config says of the settings with one changed.
  std::string with(const std::string& key, const Json& value) const {
    Json json = config();
    if (value.is_discarded())
      json.erase(key);
    else
      json[key] = value;
    write_text(file("adapter_config.json"), json.dump());
    const std::string message = error_of([&] { load_adapter_config(folder_); });
    save_adapter(model_, parameters_, folder_);
    return message;
  }

  std::string folder_;
  Model model_;
  HostTensors parameters_;
};

TEST_F(Adapter, WritesWhatItReads) {
  save_adapter(model_, parameters_, folder_);
  EXPECT_EQ(config()["peft_type"], "LORA");
  EXPECT_EQ(config()["task_type"], "CAUSAL_LM");
  EXPECT_EQ(config()["lora_alpha"], 8);
  EXPECT_EQ(config()["fan_in_fan_out"], true) << "GPT-2 stores [in, out]";
  EXPECT_EQ(config()["bias"], "none");
  EXPECT_EQ(config()["base_model_name_or_path"], nullptr);
  const SafetensorsFile tensors(file("adapter_model.safetensors"));
  EXPECT_EQ(tensors.entries().size(), 2u * 2 * 3);
  EXPECT_EQ(tensors.find("base_model.model.transformer.h.0.attn.c_attn.lora_B.weight")->dims,
            (std::vector<int64_t>{96, 2}));
  const HostTensors read = load_adapter(model_, folder_);
  size_t trained = 0;
  for (const Param& p : model_.params)
    if (!p.frozen) {
      ++trained;
      EXPECT_EQ(read.at(p.name), parameters_.at(p.name)) << p.name;
    }
  EXPECT_EQ(read.size(), trained);
}

TEST_F(Adapter, AllLinearIsWrittenAsNames) {
  LoraConfig c;
  c.targets = {"all-linear"};
  const Model m = with_lora(load_model("llama-tiny", {2, 12}, Head::loss), c);
  save_adapter(m, initial_parameters(m, 1), folder_);
  EXPECT_EQ(config()["target_modules"],
            (Json{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
  EXPECT_EQ(config()["fan_in_fan_out"], false);
  c.targets = load_adapter_config(folder_).targets;
  EXPECT_EQ(print_model(with_lora(load_model("llama-tiny", {2, 12}, Head::loss), c)),
            print_model(m));
}

TEST_F(Adapter, SettingsThatChangeTheMathematicsAreRefusedByName) {
  save_adapter(model_, parameters_, folder_);
  const std::vector<std::pair<std::string, Json>> refused = {
      {"use_dora", true},
      {"lora_bias", true},
      {"rank_pattern", {{"c_fc", 4}}},
      {"alpha_pattern", {{"c_fc", 4}}},
      {"layers_to_transform", {0, 1}},
      {"layer_replication", {{0, 2}}},
      {"bias", "all"},
      {"init_lora_weights", "pissa"},
      {"init_lora_weights", "olora"},
      {"target_modules", ".*attn.*"},
      {"target_modules", Json::array()},
      {"target_modules", {1}},
      {"trainable_token_indices", {1, 2}},
      {"use_qalora", true},
      {"exclude_modules", {"c_fc"}},
      {"something_new", false},
      {"peft_type", "IA3"},
      {"peft_type", Json(Json::value_t::discarded)},
      {"task_type", "SEQ_CLS"},
      {"r", 0},
      {"r", 2.5},
      {"r", 1e30},
      {"r", "2"},
      {"lora_alpha", nullptr},
      {"lora_alpha", "8"},
      {"use_rslora", 1},
      {"modules_to_save", "wte"},
  };
  for (const auto& [key, value] : refused) {
    const std::string message = with(key, value);
    EXPECT_NE(message.find(key), std::string::npos) << key << ": " << message;
    EXPECT_NE(message.find("adapter_config.json"), std::string::npos) << message;
  }
  const std::vector<std::pair<std::string, Json>> fine = {
      {"use_dora", false},         {"rank_pattern", Json::object()},
      {"layers_pattern", nullptr}, {"peft_version", "0.9"},
      {"lora_dropout", 0.1},       {"init_lora_weights", "gaussian"},
      {"something_new", nullptr},  {"inference_mode", false},
      {"task_type", nullptr}};
  for (const auto& [key, value] : fine) EXPECT_EQ(with(key, value), "accepted") << key;
}

TEST_F(Adapter, DropoutIsKept) {
  LoraConfig c = *model_.lora;
  EXPECT_EQ(c.dropout, 0);
  c.dropout = 0.1;
  const Model m = with_lora(load_model("gpt2-tiny", {2, 12}, Head::loss), c);
  save_adapter(m, parameters_, folder_);
  EXPECT_EQ(config()["lora_dropout"], 0.1);
  EXPECT_EQ(load_adapter_config(folder_).dropout, 0.1);
  for (const Json& bad : {Json(-0.1), Json(1.5), Json("0.1")})
    EXPECT_NE(with("lora_dropout", bad).find("lora_dropout is"), std::string::npos);
}

TEST_F(Adapter, OtherFoldersAreLeftAlone) {
  const auto refused = [&](const char* words) {
    for (const std::string& error : {error_of([&] { save_adapter(model_, parameters_, folder_); }),
                                     error_of([&] { check_adapter_target(folder_); })})
      EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  fs::create_directory(folder_);
  check_adapter_target(folder_);  // empty
  write_text(file("notes.txt"), "mine");
  refused("found other things ('notes.txt') in it, expected a new or empty folder or an adapter's");
  save_adapter(model_, parameters_, folder_, {.run_folder = true});  // said to be a run's
  save_adapter(model_, parameters_, folder_);                        // an adapter's by now
  EXPECT_EQ(read_text(file("notes.txt"), 100), "mine");
  // Beside a model it would be read along with it.
  for (const char* name : {"config.json", "model.plait"}) {
    write_text(file(name), "{}");
    refused("found a model (");
    EXPECT_THROW(check_adapter_target(folder_, {.run_folder = true}), Error);
    fs::remove(file(name));
  }
}

TEST_F(Adapter, WhatDoesNotFitTheFileIsRefused) {
  save_adapter(model_, parameters_, folder_);
  const std::string before = read_text(file("adapter_model.safetensors"), 1 << 24);
  const size_t b = lora_targets(model_)[0].b;
  parameters_.at(model_.params[b].name).as<float>()[5] = 1e5F;
  const std::string error =
      error_of([&] { save_adapter(model_, parameters_, folder_, {.storage = Dtype::f16}); });
  EXPECT_NE(error.find("as f16: element ["), std::string::npos) << error;
  EXPECT_EQ(read_text(file("adapter_model.safetensors"), 1 << 24), before);
  save_adapter(model_, parameters_, folder_, {.storage = Dtype::bf16});
  EXPECT_EQ(SafetensorsFile(file("adapter_model.safetensors")).entries()[0].dtype, Dtype::bf16);
  parameters_.at(model_.params[b].name).as<float>()[5] = NAN;
  EXPECT_THROW(save_adapter(model_, parameters_, folder_), Error);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);
}

TEST_F(Adapter, BrokenFoldersAreRefused) {
  EXPECT_NE(error_of([&] { load_adapter_config(folder_); }).find("adapter_config.json"),
            std::string::npos);
  save_adapter(model_, parameters_, folder_);
  for (const char* text : {"", "[]", "{", "3", "{\"r\": 1, \"r\": 2}"}) {
    write_text(file("adapter_config.json"), text);
    EXPECT_NE(error_of([&] { load_adapter_config(folder_); }), "accepted") << text;
  }
  save_adapter(model_, parameters_, folder_);
  // Tensors of another rank, missing ones, and ones too many.
  LoraConfig c = *model_.lora;
  c.rank = 3;
  const Model base = load_model("gpt2-tiny", {2, 12}, Head::loss);
  EXPECT_NE(error_of([&] {
              load_adapter(with_lora(base, c), folder_);
            }).find("lora_A.weight': found F32 [2, 32], expected floating-point [3, 32]"),
            std::string::npos);
  c.rank = 2;
  c.targets = {"c_attn"};
  EXPECT_NE(error_of([&] {
              load_adapter(with_lora(base, c), folder_);
            }).find("6 of its tensors are no adapters of the model: base_model.model."),
            std::string::npos);
  c.targets = {"c_attn", "c_fc", "mlp.c_proj"};
  EXPECT_NE(
      error_of([&] { load_adapter(with_lora(base, c), folder_); }).find("6 tensors are not in it"),
      std::string::npos);
  EXPECT_NE(error_of([&] { load_adapter(base, folder_); }).find("has no adapters"),
            std::string::npos);
}

TEST_F(Adapter, SavingLeavesTheOldFolderOrTheNew) {
  save_adapter(model_, parameters_, folder_);
  const std::string before = read_text(file("adapter_model.safetensors"), 1 << 24);
  HostTensors missing = parameters_;
  missing.erase(model_.params.back().name);
  EXPECT_NE(error_of([&] { save_adapter(model_, missing, folder_); }).find("has no value"),
            std::string::npos);
  EXPECT_EQ(read_text(file("adapter_model.safetensors"), 1 << 24), before);
  // Other files stay.
  write_text(file("README.md"), "mine");
  save_adapter(model_, parameters_, folder_);
  EXPECT_EQ(read_text(file("README.md"), 100), "mine");
  EXPECT_EQ(read_text(file("adapter_model.safetensors"), 1 << 24), before);
  EXPECT_NE(error_of([&] {
              save_adapter(model_, parameters_, folder_ + "/no/where");
            }).find("there is no folder"),
            std::string::npos);
  EXPECT_NE(error_of([&] { save_model(model_, parameters_, folder_ + "2"); }).find("save_adapter"),
            std::string::npos);
}

}  // namespace
}  // namespace plait
