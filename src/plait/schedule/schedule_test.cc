#include "plait/schedule/schedule.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

// Most micro-batches of one stage that are between their F and their W at once.
int most_in_flight(const std::vector<Unit>& order) {
  int live = 0, most = 0;
  for (const Unit& u : order) {
    if (u.phase == Phase::F) most = std::max(most, ++live);
    if (u.phase == Phase::W) --live;
  }
  return most;
}

TEST(Schedule, EverySizeIsLegalAndHoldsItsMemory) {
  for (const std::string& name : schedule_names())
    for (int stages = 1; stages <= 8; ++stages)
      for (int m = 1; m <= 12; ++m) {
        const Schedule s = make_schedule(name, stages, m);  // checks itself
        for (int stage = 0; stage < stages; ++stage) {
          const auto& order = s.ranks[static_cast<size_t>(stage)];
          EXPECT_EQ(order.size(), static_cast<size_t>(3 * m));
          // GPipe holds all micro-batches, 1F1B as many as there are stages below, and itself.
          EXPECT_EQ(most_in_flight(order), name == "gpipe" ? m : std::min(m, stages - stage));
        }
      }
}

TEST(Schedule, OneForwardOneBackwardByHand) {
  const Schedule s = make_schedule("1f1b", 2, 3);
  std::string text;
  for (const Unit& u : s.ranks[0]) text += to_string(u) + ", ";
  EXPECT_EQ(text,
            "F s0 m0, F s0 m1, B s0 m0, W s0 m0, F s0 m2, B s0 m1, W s0 m1, B s0 m2, W s0 m2, ");
}

std::string refusal(const Schedule& s) {
  try {
    check_schedule(s);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Schedule, WhatIsIllegalIsNamed) {
  Schedule s = make_schedule("gpipe", 2, 2);
  EXPECT_EQ(refusal(s), "");
  Schedule missing = s;
  missing.ranks[1].pop_back();
  EXPECT_NE(refusal(missing).find("stage 1 micro-batch 1 has 2 of 3 phases"), std::string::npos);
  Schedule early = s;
  std::swap(early.ranks[0][0], early.ranks[0][2]);
  EXPECT_NE(refusal(early).find("B s0 m0 stands after 0"), std::string::npos);
  Schedule order = s;  // B0 B1 W1 W0
  order.ranks[0] = {s.ranks[0][0], s.ranks[0][1], s.ranks[0][2],
                    s.ranks[0][4], s.ranks[0][5], s.ranks[0][3]};
  EXPECT_NE(refusal(order).find("W s0 m1 is not in micro-batch order"), std::string::npos);
  Schedule cycle = s;  // rank 0 wants a backward before it has sent all forwards that rank 1 needs
  cycle.ranks[0] = {s.ranks[0][0], s.ranks[0][2], s.ranks[0][3],
                    s.ranks[0][1], s.ranks[0][4], s.ranks[0][5]};
  EXPECT_NE(refusal(cycle).find("waits for ever"), std::string::npos);
  EXPECT_THROW(make_schedule("zigzag", 2, 2), Error);
}

}  // namespace
}  // namespace plait
