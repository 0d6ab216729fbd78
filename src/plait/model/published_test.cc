// What the config.json files of published models hold, shortened where values do not matter: every
// one of them builds, and its parameters are as many as its makers say. And what transformers 5
// writes for the same families.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plait/model/families.h"

namespace plait {
namespace {

struct Published {
  const char* name;
  int64_t parameters;
  const char* config;
};

constexpr Published kPublished[] = {
    {"Llama-3.1-8B", 8'030'261'248, R"({"architectures": ["LlamaForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
      "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
      "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
      "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
      "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128256})"},
    {"Mistral-7B-v0.1", 7'241'732'096, R"({"architectures": ["MistralForCausalLM"],
      "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
      "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768,
      "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000})"},
    {"Mistral-7B-v0.3", 7'248'023'552, R"({"architectures": ["MistralForCausalLM"],
      "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
      "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.42.0.dev0", "use_cache": true,
      "vocab_size": 32768})"},
    {"Qwen2-7B", 7'615'616'512, R"({"architectures": ["Qwen2ForCausalLM"],
      "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
      "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
      "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
      "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
      "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "sliding_window": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.37.2", "use_cache": true, "use_sliding_window": false,
      "vocab_size": 152064})"},
    {"Qwen2.5-0.5B", 494'032'768, R"({"architectures": ["Qwen2ForCausalLM"],
      "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
      "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
      "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
      "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
      "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
      "use_sliding_window": false, "vocab_size": 151936})"},
    {"Qwen3-0.6B", 596'049'920, R"({"architectures": ["Qwen3ForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
      "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
      "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
      "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16,
      "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
      "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
      "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})"},
    {"gemma-2b", 2'506'172'416, R"({"architectures": ["GemmaForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1,
      "head_dim": 256, "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 16384,
      "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 8,
      "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000.0,
      "torch_dtype": "bfloat16", "transformers_version": "4.38.0.dev0", "use_cache": true,
      "vocab_size": 256000})"},
    {"gemma-2-2b", 2'614'341'888, R"({"architectures": ["Gemma2ForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "attn_logit_softcapping": 50.0,
      "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
      "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02,
      "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2",
      "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
      "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
      "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32",
      "transformers_version": "4.42.4", "use_cache": true, "vocab_size": 256000})"},
    {"gemma-3-1b-it", 999'885'952, R"({"architectures": ["Gemma3ForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "attn_logit_softcapping": null,
      "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
      "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 1152, "initializer_range": 0.02, "intermediate_size": 6912,
      "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4,
      "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
      "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
      "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512,
      "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
      "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144})"},
    {"OLMo-2-0425-1B", 1'484'916'736, R"({"architectures": ["Olmo2ForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "eos_token_id": 100257,
      "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
      "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "olmo2",
      "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 16,
      "pad_token_id": 100277, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000,
      "tie_word_embeddings": false, "torch_dtype": "float32", "transformers_version": "4.47.0",
      "use_cache": false, "vocab_size": 100352})"},
    {"SmolLM-135M", 134'515'008, R"({"architectures": ["LlamaForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0,
      "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
      "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 2048,
      "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
      "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1,
      "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
      "rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.40.1", "use_cache": true, "vocab_size": 49152})"},
    {"SmolLM3-3B", 3'075'098'624, R"({"architectures": ["SmolLM3ForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": null,
      "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 2048,
      "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 65536,
      "max_window_layers": 28, "mlp_bias": false, "model_type": "smollm3",
      "no_rope_layer_interval": 4, "num_attention_heads": 16, "num_hidden_layers": 36,
      "num_key_value_heads": 4, "pad_token_id": 128004, "pretraining_tp": 2,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0,
      "sliding_window": null, "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0",
      "use_cache": false, "use_sliding_window": false, "vocab_size": 128256})"},
    {"gpt2", 124'439'808, R"({"activation_function": "gelu_new",
      "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
      "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
      "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768,
      "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
      "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
      "summary_type": "cls_index", "summary_use_proj": true,
      "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
      "vocab_size": 50257})"},
};

TEST(Published, EveryConfigurationBuilds) {
  for (const Published& p : kPublished)
    for (const Head head : {Head::logits, Head::token_loss, Head::loss}) {
      SCOPED_TRACE(p.name);
      auto config = nlohmann::json::parse(p.config);
      // GPT-2 was trained with dropout: training it needs that to be 0.
      for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"})
        if (head == Head::loss && config.contains(key)) config[key] = 0;
      const Model m = build_model(config.dump(), {2, 64}, head);
      EXPECT_EQ(m.parameter_count(), p.parameters);
      EXPECT_EQ(print_model(parse_model(print_model(m), "printed")), print_model(m));
      EXPECT_EQ(m.results.size(), head == Head::token_loss ? 1u : 0u);
    }
}

TEST(Published, Gpt2sDropoutIsRefusedInTraining) {
  const char* config = kPublished[std::size(kPublished) - 1].config;
  EXPECT_THROW(build_model(config, {2, 64}, Head::loss), Error);
  build_model(config, {2, 64}, Head::loss, Dropout::off);  // as plait eval does
}

// The kinds of layers, as "block*times" in order.
std::string kinds(const Model& m) {
  std::string s, last;
  int64_t times = 0;
  const auto flush = [&] {
    if (times > 0) s += fmt::format("{}{}*{}", s.empty() ? "" : " ", last, times);
  };
  for (const BlockUse& use : m.uses) {
    const std::string& block = m.blocks[use.block].name;
    if (!block.starts_with("layer")) continue;
    if (block != last) flush(), times = 0;
    last = block;
    ++times;
  }
  flush();
  return s;
}

TEST(Published, LayersDifferWhereTheyShould) {
  const auto kinds_of = [](size_t i) {
    return kinds(build_model(kPublished[i].config, {2, 64}, Head::logits));
  };
  EXPECT_EQ(kinds_of(0), "layer*32");
  EXPECT_EQ(kinds_of(7).substr(0, 40), "layer_0*1 layer_1*1 layer_0*1 layer_1*1 ");
  EXPECT_EQ(kinds_of(8),
            "layer_0*5 layer_1*1 layer_0*5 layer_1*1 layer_0*5 layer_1*1 layer_0*5 layer_1*1 "
            "layer_0*2");
  EXPECT_EQ(kinds_of(11).substr(0, 30), "layer_0*3 layer_1*1 layer_0*3 ");
  const std::string gemma = print_model(build_model(kPublished[8].config, {2, 64}, Head::logits));
  EXPECT_NE(gemma.find("rope(q_normed, positions) head_size=256 theta=10000\n"), std::string::npos);
  EXPECT_NE(gemma.find("rope(q_normed, positions) head_size=256 theta=1000000\n"),
            std::string::npos);
  EXPECT_NE(gemma.find("head_size=256 scale=0.0625 window=512\n"), std::string::npos);
}

// What transformers 5 writes: dtype, rope_parameters, layer_types, nulls; two layers each.
TEST(Published, ConfigurationsOfTransformersFiveBuild) {
  const std::string common = R"("architectures": null, "attention_dropout": 0.0,
      "bos_token_id": 1, "chunk_size_feed_forward": 0, "dtype": null, "eos_token_id": 2,
      "hidden_size": 32, "id2label": {"0": "LABEL_0"}, "initializer_range": 0.02,
      "intermediate_size": 40, "is_encoder_decoder": false, "label2id": {"LABEL_0": 0},
      "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
      "num_key_value_heads": 2, "output_attentions": false, "output_hidden_states": false,
      "pad_token_id": null, "problem_type": null, "return_dict": true, "rms_norm_eps": 1e-06,
      "tie_word_embeddings": false, "transformers_version": "5.24.0", "use_cache": true,
      "vocab_size": 67, "_name_or_path": "")";
  const std::string plain = R"("rope_parameters": {"rope_theta": 500.0, "rope_type": "default"})";
  const struct {
    const char *more, *kinds;
  } cases[] = {
      {R"("model_type": "llama", "attention_bias": false, "mlp_bias": false, "head_dim": 8,
          "hidden_act": "silu", "pretraining_tp": 1)",
       "layer*2"},
      {R"("model_type": "mistral", "head_dim": 8, "hidden_act": "silu", "sliding_window": 9)",
       "layer*2"},
      {R"("model_type": "qwen2", "hidden_act": "silu", "max_window_layers": 28,
          "layer_types": ["full_attention", "full_attention"], "sliding_window": null,
          "use_sliding_window": false)",
       "layer*2"},
      {R"("model_type": "qwen3", "hidden_act": "silu", "attention_bias": false, "head_dim": 8,
          "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 5,
          "max_window_layers": 1, "use_sliding_window": true)",
       "layer_0*1 layer_1*1"},
      {R"("model_type": "gemma", "attention_bias": false, "head_dim": 8,
          "hidden_act": "gelu_pytorch_tanh", "use_bidirectional_attention": null)",
       "layer*2"},
      {R"("model_type": "gemma2", "attention_bias": false, "head_dim": 8,
          "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
          "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
          "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9,
          "use_bidirectional_attention": null)",
       "layer_0*1 layer_1*1"},
      {R"("model_type": "olmo2", "attention_bias": false, "hidden_act": "silu")", "layer*2"},
      {R"("model_type": "smollm3", "attention_bias": false, "mlp_bias": false,
          "hidden_act": "silu", "layer_types": ["full_attention", "full_attention"],
          "no_rope_layer_interval": 4, "no_rope_layers": [1, 0], "sliding_window": null,
          "use_sliding_window": false)",
       "layer_0*1 layer_1*1"},
  };
  for (const auto& c : cases) {
    const Model m =
        build_model("{" + common + ", " + plain + ", " + c.more + "}", {2, 8}, Head::loss);
    EXPECT_EQ(kinds(m), c.kinds) << c.more;
    EXPECT_TRUE(print_model(m).find(" theta=500") != std::string::npos) << c.more;
  }
  const Model gemma3 =
      build_model("{" + common + R"(, "model_type": "gemma3_text", "_sliding_window_pattern": 6,
      "attention_bias": false, "attn_logit_softcapping": null, "final_logit_softcapping": null,
      "head_dim": 8, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
      "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9,
      "rope_parameters": {"full_attention": {"rope_theta": 700.0, "rope_type": "default"},
      "sliding_attention": {"rope_theta": 300.0, "rope_type": "default"}},
      "use_bidirectional_attention": false})",
                  {2, 8}, Head::loss);
  EXPECT_EQ(kinds(gemma3), "layer_0*1 layer_1*1");
  const std::string text = print_model(gemma3);
  EXPECT_LT(text.find("theta=300"), text.find("theta=700"));
}

}  // namespace
}  // namespace plait
