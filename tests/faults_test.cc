// Faults that users of other training systems reported, and that their kinds are absent here. Names
// begin with the section and number of the kind: A how the loss is averaged, B gradients under
// tensor parallelism, C the gradient norm and clipping. Everything is held against one rank that
// takes the whole batch as one micro-batch.
#include "faults.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "plait/program/verify.h"

namespace plait {
namespace {

// Every factorisation of so many ranks into pp, dp, tp. A pipeline has at most six stages here.
std::vector<std::array<int, 3>> meshes(std::initializer_list<int> worlds) {
  std::vector<std::array<int, 3>> all;
  for (const int world : worlds)
    for (int pp = 1; pp <= 6; ++pp)
      for (int dp = 1; pp * dp <= world; ++dp)
        if (world % (pp * dp) == 0) all.push_back({pp, dp, world / (pp * dp)});
  return all;
}

// Heads are split where the key/value heads allow it.
std::string splits_for(int tp, int kv_heads) {
  std::string s = "T='dp'\nF='tp'\nV='tp'\n";
  return kv_heads % tp == 0 ? s + "H='tp'\nG='tp'\n" : s;
}

TEST(Faults, A1_LossAndGradientsIgnoreAccumulationAndDataParallelism) {
  for (const int64_t microbatches : {1, 2, 4}) {
    const Truth truth = fault_truth(d4(), {.microbatches = microbatches});
    for (const int dp : {1, 2, 4})
      EXPECT_EQ(held_against(truth, fault_plan(1, dp, 1, microbatches)), "")
          << "dp " << dp << ", " << microbatches << " micro-batches";
  }
}

TEST(Faults, A2_PipelinesScaleGradientsAsOneRankDoes) {
  const Truth truth = fault_truth(d4(), {.microbatches = 4});
  for (const int pp : {1, 2, 4}) EXPECT_EQ(held_against(truth, fault_plan(pp, 1, 1, 4)), "") << pp;
}

TEST(Faults, A3_AccumulatedGradientsAreScaledOnce) {
  for (const int64_t microbatches : {1, 2, 4})
    for (const char* schedule : {"gpipe", "1f1b"}) {
      Plan plan = fault_plan(2, 1, 1, microbatches);
      plan.schedule = schedule;
      EXPECT_EQ(held_against(fault_truth(d4(), {.microbatches = microbatches}), plan), "")
          << microbatches << " " << schedule;
    }
}

TEST(Faults, A6_TheLossIgnoresTheSizeOfMicroBatches) {
  for (const Mean mean : {Mean::tokens, Mean::samples})
    for (const int64_t microbatches : {1, 2, 4, 8})
      EXPECT_EQ(held_against(fault_truth(d4(), {.microbatches = microbatches, .mean = mean}),
                             one_rank_plan(microbatches)),
                "")
          << microbatches << (mean == Mean::tokens ? " tokens" : " samples");
  // The two means are two losses.
  EXPECT_NE(fault_truth(d4(), {.mean = Mean::tokens}).reference.loss,
            fault_truth(d4(), {.mean = Mean::samples}).reference.loss);
}

TEST(Faults, A7_UnevenTokenCountsUnderEveryProductOfAxes) {
  const Truth truth = fault_truth(d4(), {.microbatches = 2});
  for (const auto& [pp, dp, tp] : meshes({6, 8}))
    EXPECT_EQ(held_against(truth, fault_plan(pp, dp, tp, 2, splits_for(tp, 2))), "")
        << pp << " x " << dp << " x " << tp;
}

TEST(Faults, A8_AMaskedSampleAddsNothingAndNoNaN) {
  // Alone on its data rank, alone in its micro-batch, and with half of the samples masked besides.
  EXPECT_EQ(held_against(fault_truth(d4()), fault_plan(1, 8, 1)), "");
  EXPECT_EQ(held_against(fault_truth(d4(), {.microbatches = 8}), fault_plan(2, 1, 1, 8)), "");
  EXPECT_EQ(
      held_against(fault_truth(d4(), {.masked_samples = {0, 1, 2, 3, 6}}), fault_plan(1, 2, 2)),
      "");
  // What the masked sample says changes no bit.
  Truth truth = fault_truth(d4());
  HostTensors before, after;
  for (HostTensors* gradients : {&before, &after}) {
    Session session(lower(truth.model, fault_plan(1, 8, 1), harness_options()).programs, {});
    session.set_states("param/", truth.parameters);
    session.step(truth.batch);
    *gradients = session.gather("grad/");
    for (int64_t i = 6 * 24; i < 7 * 24; ++i)
      truth.batch.microbatches[0]["labels"].as<int32_t>()[i] = 3;
  }
  EXPECT_EQ(before, after);
}

TEST(Faults, A8_AStepWithoutATokenThatCountsIsZero) {
  const Truth truth = fault_truth(d4(), {.masked_samples = {0, 1, 2, 3, 4, 5, 6, 7}});
  EXPECT_EQ(truth.reference.loss, 0);
  Session session(lower(truth.model, fault_plan(2, 2, 2), harness_options()).programs, {});
  session.set_states("param/", truth.parameters);
  session.step(truth.batch);
  EXPECT_EQ(session.scalar("loss"), 0);
  EXPECT_EQ(session.scalar("grad_sum_squares"), 0);
  EXPECT_EQ(session.gather("param/"), truth.parameters);
}

TEST(Faults, B1_OneKeyValueHeadUnderTensorParallelism) {
  const Truth truth = fault_truth(d4_one_kv_head());
  for (const int tp : {2, 4})
    EXPECT_EQ(held_against(truth, fault_plan(1, 1, tp, 1, "H='tp'\nF='tp'\nV='tp'\n")), "") << tp;
}

TEST(Faults, B2_MoreTensorRanksThanKeyValueHeads) {
  const Truth truth = fault_truth(d4());
  // Key/value heads whole on every rank, query heads split.
  EXPECT_EQ(held_against(truth, fault_plan(1, 1, 4, 1, "H='tp'\nF='tp'\nV='tp'\n")), "");
  // Cut within a head: refused, never run on empty shards.
  const std::string refused = held_against(truth, fault_plan(1, 1, 4));
  EXPECT_TRUE(refused.empty() || refused.starts_with("refused: ")) << refused;
  const std::string three = held_against(truth, fault_plan(1, 1, 3));
  EXPECT_TRUE(three.empty() || three.starts_with("refused: ")) << three;
}

// Replicated logits, and a log-sum-exp over the tensor axis on top: log(2) too much.
TEST(Faults, B3_WholeLogitsAreNotReducedOverTheTensorAxis) {
  const Truth truth = fault_truth(d4());
  const Plan plan = fault_plan(1, 1, 2, 1, "H='tp'\nG='tp'\nF='tp'\n");
  LowerOptions options = harness_options();
  options.fuse = false;  // the fault stands between two ops that one kernel does at once else
  Programs programs = lower(truth.model, plan, options).programs;
  verify(programs);
  for (int rank = 0; rank < 2; ++rank) {
    Program& p = programs.ranks[static_cast<size_t>(rank)];
    for (size_t i = 0; i < p.actions.size(); ++i) {
      if (p.actions[i].name != "row_lse") continue;
      const BufferId whole = p.actions[i].out[0], again = static_cast<BufferId>(p.buffers.size());
      p.buffers.push_back(p.buffer(whole));
      for (size_t j = i + 1; j < p.actions.size(); ++j)
        std::replace(p.actions[j].in.begin(), p.actions[j].in.end(), whole, again);
      Action reduce;
      reduce.kind = ActionKind::all_reduce;
      reduce.comm.kind = Comm::Kind::all_reduce;
      reduce.comm.axis = "tp";
      reduce.comm.reduce = Reduce::lse;
      reduce.group = {0, 1};
      reduce.in = {whole};
      reduce.out = {again};
      reduce.unit = p.actions[i].unit;
      p.actions.insert(p.actions.begin() + static_cast<int64_t>(i) + 1, reduce);
      break;
    }
    derive_buffers(p, programs.mesh, rank);
  }
  try {
    verify(programs);
    ADD_FAILURE() << "it verified";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("all_reduce"), std::string::npos) << e.what();
  }
}

TEST(Faults, B5_NormGradientsUnderSequenceParallelism) {
  // Tokens split over the tensor axis outside attention and matmuls, as sequence parallelism has
  // it; then norms of q and k see some heads, norms of x some tokens.
  const std::string splits = "T=['dp','tp']\nH='tp'\nF='tp'\nV='tp'\n";
  const Truth truth = fault_truth(d4_qk_norm());
  EXPECT_EQ(held_against(truth, fault_plan(1, 1, 4, 1, splits)), "");
  EXPECT_EQ(held_against(truth, fault_plan(1, 2, 2, 1, splits + "G='tp'\n")), "");
  EXPECT_EQ(held_against(truth, fault_plan(2, 1, 4, 1, "T='dp'\nH='tp'\nF='tp'\n")), "");
}

TEST(Faults, B8_AdaptersThatRanksShareAreReducedAndTheBaseHasNoGradient) {
  const Truth truth = fault_truth(d4(), {.microbatches = 2}, fault_lora());
  for (const auto& [name, gradient] : truth.reference.gradients)
    EXPECT_NE(name.find("lora_"), std::string::npos) << name;
  // A's rows are whole on every tensor rank where its input is, and so are B's columns.
  const std::string splits = "T=['dp','tp']\nH='tp'\nG='tp'\nF='tp'\nV='tp'\n";
  EXPECT_EQ(held_against(truth, fault_plan(1, 2, 2, 2, splits)), "");
  EXPECT_EQ(held_against(truth, fault_plan(2, 2, 2, 2)), "");
  EXPECT_EQ(held_against(truth, fault_plan(1, 1, 4, 2, splits_for(4, 2) + "H='tp'\n")), "");
}

TEST(Faults, B9_AdaptersBeginAlikeInEveryLayout) {
  const Truth truth = fault_truth(d4(), {}, fault_lora());
  const HostTensors drawn = initial_parameters(truth.model, 3);
  for (const auto& [name, t] : drawn) {
    const bool is_a = name.find("lora_A") != std::string::npos;
    if (is_a || name.find("lora_B") != std::string::npos) {
      EXPECT_EQ(norm(t) > 0, is_a) << name;
    }
  }
  for (const int tp : {1, 2, 4}) {
    const Plan plan = fault_plan(1, 1, tp, 1, splits_for(tp, 2));
    Session session(lower(truth.model, plan, harness_options()).programs, {});
    session.set_states("param/", drawn);
    session.check_replicas("");
    EXPECT_EQ(session.gather("param/"), drawn) << tp;
  }
}

TEST(Faults, B11_ReplicasThatDriftAreNamed) {
  const Truth truth = fault_truth(d4());
  Programs programs = lower(truth.model, fault_plan(1, 2, 1), harness_options()).programs;
  // Rank 1 leaves one update out; trusted, it runs.
  auto& actions = programs.ranks[1].actions;
  for (size_t i = 0; i < actions.size(); ++i)
    if (actions[i].name == "sgd" &&
        programs.ranks[1].buffer(actions[i].in[0]).name == "param/model.norm.weight") {
      actions.erase(actions.begin() + static_cast<int64_t>(i));
      break;
    }
  SessionOptions options;
  options.trust = true;
  Session session(programs, options);
  session.set_states("param/", truth.parameters);
  session.check_replicas("");
  session.step(truth.batch);
  try {
    session.check_replicas("");
    ADD_FAILURE() << "not noticed";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("param/model.norm.weight"), std::string::npos) << e.what();
  }
}

TEST(Faults, C1_TheNormCountsEveryGradientOnceUnderEveryMesh) {
  const Truth truth = fault_truth(d4());
  for (const auto& [pp, dp, tp] : meshes({1, 2, 3, 4, 5, 6, 7, 8}))
    EXPECT_EQ(held_against(truth, fault_plan(pp, dp, tp, 1, splits_for(tp, 2))), "")
        << pp << " x " << dp << " x " << tp;
}

TEST(Faults, C2_TiedAndReplicatedWeightsCountOnce) {
  const Truth truth = fault_truth(d4_tied());
  for (const auto& [pp, dp, tp] : meshes({4, 8}))
    // The vocabulary is whole on every tensor rank.
    EXPECT_EQ(held_against(truth, fault_plan(pp, dp, tp, 1, "T='dp'\nF='tp'\n")), "")
        << pp << " x " << dp << " x " << tp;
}

TEST(Faults, C5_TheNormAndTheLossAreTheSameBitsOnEveryRank) {
  const Truth truth = fault_truth(d4_tied(), {.microbatches = 2});
  for (const auto& [pp, dp, tp] : {std::array{2, 2, 2}, std::array{4, 2, 1}, std::array{1, 4, 2}}) {
    Session session(lower(truth.model, fault_plan(pp, dp, tp, 2), harness_options()).programs, {});
    session.set_states("param/", truth.parameters);
    session.step(truth.batch);
    for (const char* state : {"grad_sum_squares", "loss"}) {
      const double first = session.scalar(state, 0);
      EXPECT_GT(first, 0);
      for (int rank = 1; rank < 8; ++rank) {
        const double other = session.scalar(state, rank);
        EXPECT_EQ(std::memcmp(&first, &other, sizeof first), 0) << state << " on rank " << rank;
      }
    }
  }
}

TEST(Faults, C6_AStageWithoutTrainedParametersTakesPartInTheNorm) {
  for (const char* layer : {"0", "1", "3"}) {
    const std::string module = fmt::format("model.layers.{}.self_attn.q_proj", layer);
    const Truth truth = fault_truth(d4(), {.microbatches = 4}, fault_lora({module}));
    EXPECT_EQ(truth.reference.gradients.size(), 2u);
    EXPECT_EQ(held_against(truth, fault_plan(4, 1, 1, 4)), "") << layer;
    EXPECT_EQ(held_against(truth, fault_plan(4, 2, 1, 4)), "") << layer;
  }
}

TEST(Faults, C7_ClippingUnderTensorParallelismIsClippingOnOneRank) {
  Truth truth = fault_truth(d4());
  const double length = std::sqrt(truth.reference.grad_sum_squares);
  ASSERT_GT(length, 0.1) << "clipping must happen";
  truth.after = truth.parameters;
  reference_sgd(truth.after, truth.reference.gradients, kHarnessRate * 0.1 / length);
  LowerOptions options = harness_options();
  options.optimizer.max_norm = 0.1;
  for (const auto& [pp, dp, tp] : {std::array{1, 1, 1}, std::array{1, 1, 2}, std::array{1, 2, 2},
                                   std::array{2, 2, 2}, std::array{2, 1, 4}})
    EXPECT_EQ(held_against(truth, fault_plan(pp, dp, tp, 1, splits_for(tp, 2)), options), "")
        << pp << " x " << dp << " x " << tp;
}

}  // namespace
}  // namespace plait
