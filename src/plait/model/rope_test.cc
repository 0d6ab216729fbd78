// Against what transformers 5.24 computes for the same parameters, in float32.
#include "plait/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace plait {
namespace {

struct Expected {
  const char* scaling;
  int64_t slot_tokens, max_positions;
  std::vector<double> frequencies;
  double magnitude;
};

Rope read(const std::string& key, const std::string& scaling, int64_t slot_tokens,
          int64_t max_positions) {
  Config config(fmt::format(R"({{"rope_theta": 10000.0, "{}": {}}})", key, scaling));
  const auto ropes = read_ropes(config, {16, max_positions, slot_tokens}, 500);
  config.finish();
  return ropes.at("");
}

const Expected kExpected[] = {
    {R"({"rope_type": "linear", "factor": 4.0})",
     24,
     64,
     {0.25, 0.079056941, 0.025, 0.00790569466, 0.0025, 0.000790569466, 0.00025, 7.90569466e-05},
     1},
    {R"({"type": "dynamic", "factor": 4.0})",
     24,
     64,
     {1, 0.316227764, 0.1, 0.0316227786, 0.01, 0.00316227786, 0.001, 0.000316227786},
     1},
    {R"({"type": "dynamic", "factor": 4.0})",
     200,
     64,
     {1, 0.229258373, 0.0525593981, 0.0120496824, 0.00276249065, 0.000633324089, 0.000145194848,
      3.3287135e-05},
     1},
    {R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256})",
     24,
     1024,
     {1, 0.25693506, 0.0625, 0.0138349654, 0.0025, 0.000790569466, 0.00025, 7.90569466e-05},
     1.138629436111989},
    {R"({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256,
         "mscale": 0.9, "mscale_all_dim": 0.4, "beta_fast": 20, "beta_slow": 2,
         "truncate": false})",
     24,
     1024,
     {1, 0.263386548, 0.0395401344, 0.00395284733, 0.00125, 0.000395284733, 0.000125,
      3.95284733e-05},
     1.0959880181834263},
    {R"({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256,
         "attention_factor": 1.3})",
     24,
     1024,
     {1, 0.247052938, 0.0562500022, 0.01087033, 0.00125, 0.000395284733, 0.000125, 3.95284733e-05},
     1.3},
    {R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 256})",
     24,
     1024,
     {1, 0.316227764, 0.1, 0.00661310693, 0.00125, 0.000395284733, 0.000125, 3.95284733e-05},
     1},
    {R"({"rope_type": "longrope", "original_max_position_embeddings": 64,
         "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
         "long_factor": [2, 3, 4, 5, 6, 7, 8, 9]})",
     24,
     256,
     {1, 0.287479758, 0.0833333358, 0.0243252143, 0.00714285718, 0.00210818532, 0.000625,
      0.000186016332},
     1.1547005383792517},
    {R"({"rope_type": "longrope", "original_max_position_embeddings": 64,
         "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
         "long_factor": [2, 3, 4, 5, 6, 7, 8, 9]})",
     100,
     256,
     {0.5, 0.10540925, 0.025, 0.00632455572, 0.00166666671, 0.000451753964, 0.000125,
      3.51364179e-05},
     1.1547005383792517},
    {R"({"rope_type": "longrope", "original_max_position_embeddings": 64, "factor": 2.0,
         "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
         "long_factor": [2, 3, 4, 5, 6, 7, 8, 9]})",
     24,
     256,
     {1, 0.287479758, 0.0833333358, 0.0243252143, 0.00714285718, 0.00210818532, 0.000625,
      0.000186016332},
     1.0801234497346435},
};

TEST(Rope, EveryScalingAsTransformersComputesIt) {
  for (const Expected& e : kExpected)
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      Rope rope = read(key, e.scaling, e.slot_tokens, e.max_positions);
      if (rope.frequencies.empty())  // those of theta
        for (int i = 0; i < 8; ++i) rope.frequencies.push_back(std::pow(rope.theta, -i / 8.0));
      ASSERT_EQ(rope.frequencies.size(), 8u) << e.scaling;
      for (size_t i = 0; i < 8; ++i)
        EXPECT_NEAR(rope.frequencies[i] / e.frequencies[i], 1, 1e-6) << e.scaling << " pair " << i;
      EXPECT_NEAR(rope.magnitude, e.magnitude, 1e-15) << e.scaling;
    }
}

TEST(Rope, ParametersCarryTheirOwnTheta) {
  EXPECT_EQ(read("rope_parameters", R"({"rope_type": "default", "rope_theta": 7.5})", 24, 64).theta,
            7.5);
  EXPECT_EQ(read("rope_scaling", "null", 24, 64).theta, 10000);
  Config plain("{}");
  EXPECT_EQ(read_ropes(plain, {16, 64, 24}, 500).at("").theta, 500);
}

TEST(Rope, ASectionForEachTypeOfLayer) {
  Config config(R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8,
      "rope_theta": 1000000.0}, "sliding_attention": {"rope_type": "default"}}})");
  RopeSizes sizes{8, 64, 24};
  sizes.sliding_theta = 10000;
  const auto ropes = read_ropes(config, sizes, 1000000);
  config.finish();
  ASSERT_EQ(ropes.size(), 2u);
  EXPECT_EQ(ropes.at("full_attention").frequencies[0], 0.125);
  EXPECT_EQ(ropes.at("sliding_attention").theta, 10000);
  EXPECT_EQ(rope_attributes(ropes.at("sliding_attention"), 8), " head_size=8 theta=10000");
}

TEST(Rope, RefusesWhatMakesNoSense) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "linear", "rope_type": "yarn", "factor": 2})", "needs one of them"},
      {R"({"type": "dynamic", "factor": -2})", "'rope_scaling.factor' is -2"},
      {R"({"type": "linear", "factor": 2, "beta_fast": 32})", "'rope_scaling.beta_fast' (32)"},
      {R"({"type": "llama3", "factor": 2})", "'rope_scaling.low_freq_factor' is missing"},
      {R"({"type": "llama3", "factor": 2, "low_freq_factor": 1, "high_freq_factor": 1,
           "original_max_position_embeddings": 6})",
       ""},
      {R"({"type": "longrope", "short_factor": [1], "long_factor": [1]})", "has 1 numbers for"},
      {R"({"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, "x"]})", "is \"x\", expected"},
      {R"({"type": "longrope", "original_max_position_embeddings": 1,
           "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]})",
       "no numbers"},
      {R"(["yarn"])", "expected an object"},
  };
  for (const auto& [scaling, words] : cases) try {
      read("rope_scaling", scaling, 24, 64);
      EXPECT_EQ(std::string(words), "") << scaling;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  Config both(R"({"rope_scaling": {"type": "default"}, "rope_parameters": {"type": "default"}})");
  EXPECT_THROW(read_ropes(both, {16, 64, 24}, 500), Error);
  Config odd("{}");
  EXPECT_THROW(read_ropes(odd, {7, 64, 24}, 500), Error);
}

}  // namespace
}  // namespace plait
