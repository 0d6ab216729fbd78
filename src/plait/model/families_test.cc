#include "plait/model/families.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plait/io/files.h"
#include "plait/io/safetensors.h"
#include "plait/ir/op.h"

namespace plait {
namespace {

const std::string kFixtures = PLAIT_SOURCE_DIR "/tests/fixtures/";

TEST(Families, NamedConfigurations) {
  const std::map<std::string, int64_t> parameters = {
      {"gemma-3-1b", 999'885'952},   {"gpt2", 124'439'808},           {"gpt2-tiny", 42'368},
      {"llama-3-8b", 8'030'261'248}, {"llama-3.2-1b", 1'235'814'400}, {"qwen2.5-0.5b", 494'032'768},
      {"qwen3-0.6b", 596'049'920},   {"smollm-135m", 134'515'008},    {"llama-demo", 2'460'096},
      {"llama-tiny", 50'656}};
  for (const std::string& name : named_models()) {
    const Model m = load_model(name, {2, 16}, Head::loss);
    EXPECT_EQ(m.parameter_count(), parameters.at(name)) << name;
    EXPECT_EQ(m.name, name);
    EXPECT_EQ(m.config_json, named_config(name));
  }
  EXPECT_THROW(load_model("llama-4", {}, Head::loss), Error);
  EXPECT_THROW(named_config("llama-4"), Error);
}

TEST(Families, WhatAModelHolds) {
  const Model m = load_model(kFixtures + "llama_tiny", {8, 24}, Head::loss);
  EXPECT_EQ(m.dtype, Dtype::f64);
  std::string inputs, uses;
  for (const ModelValueId id : m.inputs)
    inputs += m.values[static_cast<size_t>(id)].name + ":" +
              to_string(m.values[static_cast<size_t>(id)].type) + " ";
  EXPECT_EQ(inputs,
            "tokens:i32[T=192/24] positions:i32[T=192/24] sequences:i32[T=192/24] "
            "labels:i32[T=192/24] weights:f64[T=192/24] ");
  for (const BlockUse& u : m.uses) uses += u.name + " ";
  EXPECT_EQ(uses, "embed layers.0 layers.1 layers.2 layers.3 head ");
  EXPECT_EQ(m.extent("H"), (Extent{"H", 32, 8}));
  const Model logits = load_model(kFixtures + "llama_tiny", {8, 24}, Head::logits);
  EXPECT_EQ(logits.inputs.size(), 3U);
  EXPECT_EQ(logits.loss, kNone);
  EXPECT_EQ(to_string(logits.values[static_cast<size_t>(logits.logits)].type),
            "f64[T=192/24, V=67]");
  const Model tied = load_model(kFixtures + "llama_tiny_tied", {8, 24}, Head::loss);
  EXPECT_EQ(tied.uses.front().params[0], tied.uses.back().params[1]);
}

// ---- configurations that are refused ----

// The named configuration with one key set to a JSON value, or removed.
std::string changed(const char* name, const std::string& key, const std::string& value) {
  auto config = nlohmann::json::parse(named_config(name));
  config.erase(key);
  if (!value.empty()) config[key] = nlohmann::json::parse(value);
  return config.dump();
}

std::string error_of(const std::string& config, const BatchShape& batch = {2, 16}) {
  try {
    build_model(config, batch, Head::loss);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Families, RefuseWhatTheyCannotCompute) {
  const struct {
    const char *model, *key, *value, *words;
  } cases[] = {
      {"llama-tiny", "model_type", "\"mixtral\"", "model_type 'mixtral' is not supported yet"},
      {"llama-tiny", "model_type", "", "model_type '' is not supported yet"},
      {"llama-tiny", "architectures", "[\"LlamaForSequenceClassification\"]", "'architectures' is"},
      {"llama-tiny", "torch_dtype", "\"int8\"", "torch_dtype 'int8', expected float64"},
      {"llama-tiny", "vocab_size", "", "'vocab_size' is missing"},
      {"llama-tiny", "vocab_size", "0", "'vocab_size' is 0, expected a whole number from 1"},
      {"llama-tiny", "vocab_size", "-5", "'vocab_size' is -5, expected"},
      {"llama-tiny", "vocab_size", "67.0", "'vocab_size' is 67.0, expected"},
      {"llama-tiny", "vocab_size", "\"67\"", "'vocab_size' is \"67\", expected"},
      {"llama-tiny", "vocab_size", "4294967296", "'vocab_size' is 4294967296, expected"},
      {"llama-tiny", "num_hidden_layers", "0", "from 1 to 1000"},
      {"llama-tiny", "num_hidden_layers", "1001", "from 1 to 1000"},
      {"llama-tiny", "num_key_value_heads", "3", "4 attention heads over 3 key/value heads"},
      {"llama-tiny", "head_dim", "7", "head size 7; rotary positions need an even one"},
      {"llama-tiny", "rms_norm_eps", "0", "'rms_norm_eps' is 0, expected a number"},
      {"llama-tiny", "rms_norm_eps", "true", "'rms_norm_eps' is true"},
      {"llama-tiny", "rope_theta", "-1", "'rope_theta' is -1"},
      {"llama-tiny", "rope_scaling", "{\"factor\":2}",
       "'rope_scaling.factor' (2) is not understood"},
      {"llama-tiny", "rope_scaling", "{\"type\":\"linear\"}", "'rope_scaling.factor' is missing"},
      {"llama-tiny", "rope_scaling", "{\"type\":\"mrope\"}", "of type 'mrope' are not supported"},
      {"llama-tiny", "rope_scaling", "\"yarn\"", "'rope_scaling' is \"yarn\", expected an object"},
      {"llama-tiny", "rope_scaling", "{\"type\":\"longrope\",\"short_factor\":[1,2]}",
       "'short_factor' has 2 numbers for the 4 pairs of a head of 8"},
      {"llama-tiny", "rope_parameters", "{\"rope_type\":\"linear\",\"factor\":0}",
       "'rope_parameters.factor' is 0, expected a number"},
      {"llama-tiny", "partial_rotary_factor", "0.5", "'partial_rotary_factor' is 0.5, expected 1"},
      {"llama-tiny", "use_bidirectional_attention", "true", "attention is causal here"},
      {"llama-tiny", "layer_types", "[\"full_attention\"]", "'layer_types' has 1 entries for 4"},
      {"llama-tiny", "layer_types", "7", "'layer_types' is 7, expected a list of strings"},
      {"llama-tiny", "pruned_heads", "{\"0\":[1]}", "'pruned_heads' is"},
      {"llama-tiny", "sliding_window", "4096", "'sliding_window' is 4096, expected null"},
      {"llama-tiny", "hidden_act", "\"mish\"", "'hidden_act' is \"mish\"; known are silu, swish"},
      {"llama-tiny", "attention_bias", "1", "'attention_bias' is 1, expected true or false"},
      {"llama-tiny", "attention_dropout", "0.1",
       "expected 0; there is no dropout in training here; to train without it say --no-dropout"},
      {"llama-tiny", "tie_word_embeddings", "1", "'tie_word_embeddings' is 1"},
      {"llama-tiny", "num_local_experts", "8", "'num_local_experts' (8) is not understood"},
      {"llama-tiny", "quantization_config", "{}", "'quantization_config' ({}) is not understood"},
      {"gpt2-tiny", "n_head", "5", "n_embd 32 over 5 heads; needs a multiple"},
      {"gpt2-tiny", "n_positions", "8", "n_positions 8 in slots of 16 tokens; needs shorter"},
      {"gpt2-tiny", "n_ctx", "32", "n_ctx differs from n_positions 64"},
      {"gpt2-tiny", "resid_pdrop", "0.1", "'resid_pdrop' is 0.1, expected 0; there is no"},
      {"gpt2-tiny", "activation_function", "\"mish\"", "'activation_function' is \"mish\""},
      {"gpt2-tiny", "add_cross_attention", "true", "'add_cross_attention' is true, expected false"},
      {"gpt2-tiny", "hidden_size", "32", "'hidden_size' (32) is not understood"},
  };
  for (const auto& c : cases) {
    const std::string error = error_of(changed(c.model, c.key, c.value));
    EXPECT_NE(error.find(c.words), std::string::npos) << c.key << ": " << error;
  }
  auto narrow = nlohmann::json::parse(changed("llama-tiny", "head_dim", ""));
  narrow["hidden_size"] = 30;
  EXPECT_NE(error_of(narrow.dump()).find("hidden_size 30 over 4"), std::string::npos);
  for (const char* text : {"", "[]", "{", "{\"model_type\":\"llama\",\"model_type\":\"llama\"}"})
    EXPECT_NE(error_of(text).find("config.json: "), std::string::npos) << text;
  const std::string good = named_config("llama-tiny");
  for (const BatchShape& b : {BatchShape{0, 16}, BatchShape{1, 0}, BatchShape{1 << 20, 1 << 20}})
    EXPECT_NE(error_of(good, b).find("slots of"), std::string::npos);
}

TEST(Families, AcceptWhatIsHarmless) {
  const char* cases[][2] = {
      {"use_cache", "false"},         {"eos_token_id", "[1, 2]"}, {"rope_scaling", "null"},
      {"attention_dropout", "0.0"},   {"head_dim", ""},           {"num_key_value_heads", ""},
      {"torch_dtype", "\"float16\""}, {"dtype", "\"float32\""}};
  for (const auto& c : cases) EXPECT_EQ(error_of(changed("llama-tiny", c[0], c[1])), "accepted");
}

TEST(Families, DropoutStandsInTheWayOfTrainingAlone) {
  const std::string config = changed("gpt2-tiny", "attn_pdrop", "0.1");
  for (const Head head : {Head::loss, Head::preference}) {
    EXPECT_THROW(build_model(config, {2, 16}, head), Error);
    const Model m = build_model(config, {2, 16}, head, Dropout::off);
    EXPECT_EQ(print_model(m), print_model(build_model(named_config("gpt2-tiny"), {2, 16}, head)));
    EXPECT_EQ(m.config_json, config);  // saved with the dropout that it had
  }
  for (const Head head : {Head::logits, Head::token_loss}) build_model(config, {2, 16}, head);
  const std::string wrong = changed("gpt2-tiny", "attn_pdrop", "1.5");
  EXPECT_THROW(build_model(wrong, {2, 16}, Head::loss, Dropout::off), Error);
}

TEST(Families, ScalingsThatGoByTheSlotSaySo) {
  const std::string config =
      changed("llama-tiny", "rope_scaling", R"({"type": "dynamic", "factor": 2})");
  const auto positions = nlohmann::json::parse(config)["max_position_embeddings"].get<int64_t>();
  EXPECT_TRUE(build_model(config, {2, positions}, Head::logits).notes.empty());
  const Model m = build_model(config, {2, positions + 1}, Head::logits);
  ASSERT_EQ(m.notes.size(), 1U);
  EXPECT_NE(m.notes[0].find(fmt::format("slots of {} tokens", positions + 1)), std::string::npos);
}

// Gemma 3 as transformers reads it: no cap of the scores; the pattern without an underscore.
TEST(Families, Gemma3IsWhatTransformersTakesItFor) {
  auto config = nlohmann::json::parse(named_config("gemma-3-1b"));
  config["attn_logit_softcapping"] = 50.0;
  EXPECT_NE(error_of(config.dump()).find("'attn_logit_softcapping' is 50.0, expected null"),
            std::string::npos);
  config["attn_logit_softcapping"] = nullptr;
  config.erase("sliding_window_pattern");
  const std::string six = print_model(build_model(config.dump(), {2, 16}, Head::loss));
  config["_sliding_window_pattern"] = 6;
  EXPECT_EQ(print_model(build_model(config.dump(), {2, 16}, Head::loss)), six);
  config["_sliding_window_pattern"] = 3;
  EXPECT_NE(error_of(config.dump()).find("'_sliding_window_pattern' is 3 without 'layer_types'"),
            std::string::npos);
  config["sliding_window_pattern"] = 3;
  EXPECT_NE(print_model(build_model(config.dump(), {2, 16}, Head::loss)), six);
  config.erase("sliding_window_pattern");
  for (int64_t l = 1; l <= config["num_hidden_layers"].get<int64_t>(); ++l)
    config["layer_types"].push_back(l % 6 == 0 ? "full_attention" : "sliding_attention");
  EXPECT_EQ(print_model(build_model(config.dump(), {2, 16}, Head::loss)), six);
}

TEST(Families, TextFilesAndFolders) {
  const std::string path = path_beside(testing::TempDir() + "families_test") + ".plait";
  std::ofstream(path) << print_model(load_model("llama-tiny", {2, 16}, Head::loss));
  const Model m = load_model(path, {3, 8}, Head::loss);
  EXPECT_EQ(m.extent("T"), (Extent{"T", 24, 8}));
  EXPECT_EQ(m.config_json, "");
  EXPECT_THROW(load_model(path, {3, 8}, Head::logits), Error);
  EXPECT_THROW(load_model(path + ".plait", {3, 8}, Head::loss), Error);
  EXPECT_THROW(load_model(testing::TempDir(), {3, 8}, Head::loss), Error);
  std::remove(path.c_str());
}

// ---- the mathematics, against PyTorch ----

TensorView view(HostTensor& t) {
  TensorView v;
  v.data = t.data.data();
  v.dtype = t.dtype;
  v.rank = static_cast<int>(t.dims.size());
  for (size_t i = 0; i < t.dims.size(); ++i) v.dims[i] = v.global[i] = t.dims[i];
  return v;
}

HostTensor blank(const TensorType& type) {
  std::vector<int64_t> dims;
  for (const Extent& e : type.dims) dims.push_back(e.size);
  return HostTensor(type.dtype, dims);
}

// Runs one block on the ops' plain references; `values` holds its arguments.
void run_block(const Graph& g, std::vector<HostTensor>& values) {
  for (const Node& node : g.nodes) {
    const OpDef& op = find_op(node.op);
    std::vector<TensorView> in, out;
    std::vector<TensorType> types;
    for (const ValueId id : node.in) {
      in.push_back(view(values[static_cast<size_t>(id)]));
      types.push_back(g.type(id));
    }
    for (const ValueId id : node.out) {
      values[static_cast<size_t>(id)] = blank(g.type(id));
      out.push_back(view(values[static_cast<size_t>(id)]));
    }
    std::vector<double> scratch;
    if (op.workspace != nullptr)
      scratch.resize(static_cast<size_t>(op.workspace(node.attrs, types, 1)) / 8 + 1);
    op.reference.f64({&node.attrs, in, out, scratch.data()});
  }
}

// The value of the last use's first result.
HostTensor run_model(const Model& m, const HostTensors& parameters, const HostTensors& batch) {
  std::vector<HostTensor> now(m.values.size());
  for (const ModelValueId id : m.inputs)
    now[static_cast<size_t>(id)] = batch.at(m.values[static_cast<size_t>(id)].name);
  for (const BlockUse& use : m.uses) {
    const Graph& g = m.blocks[use.block];
    std::vector<HostTensor> values(g.values.size());
    for (size_t i = 0; i < use.inputs.size(); ++i)
      values[static_cast<size_t>(g.inputs[i])] = now[static_cast<size_t>(use.inputs[i])];
    for (size_t i = 0; i < use.params.size(); ++i)
      values[static_cast<size_t>(g.params[i])] = parameters.at(m.params[use.params[i]].name);
    run_block(g, values);
    for (size_t i = 0; i < use.outputs.size(); ++i)
      now[static_cast<size_t>(use.outputs[i])] = values[static_cast<size_t>(g.outputs[i])];
  }
  return now[static_cast<size_t>(m.uses.back().outputs[0])];
}

TEST(Families, ComputeWhatPyTorchComputes) {
  for (const char* name : {"llama_tiny", "llama_tiny_tied", "gpt2_tiny"}) {
    const std::string folder = kFixtures + name;
    const HostTensors expected = SafetensorsFile(folder + "/expected.safetensors").read_all();
    const Model loss = load_model(folder, {8, 24}, Head::loss);
    const Model logits = load_model(folder, {8, 24}, Head::logits);
    const HostTensors parameters = load_parameters(loss, folder);
    EXPECT_NEAR(run_model(loss, parameters, expected).at(0), expected.at("loss").at(0), 1e-12);
    const HostTensor found = run_model(logits, parameters, expected);
    const HostTensor& wanted = expected.at("logits");
    ASSERT_EQ(found.dims, wanted.dims);
    double worst = 0;
    for (int64_t i = 0; i < wanted.elements(); ++i)
      worst = std::max(worst, std::abs(found.at(i) - wanted.at(i)));
    EXPECT_LT(worst, 1e-12) << name;
  }
}

}  // namespace
}  // namespace plait
