// Lina's controller against its rule, written a second time as the paper states it.
#include "moe/schedule/packing.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace moe {
namespace {

std::vector<int> decision_steps(PackingController& controller, const std::vector<MicroOpTimes>& of_steps) {
  std::vector<int> moved;
  for (size_t i = 0; i < of_steps.size(); ++i) {
    controller.record(of_steps[i]);
    if (controller.end_step(static_cast<int>(i) + 1)) moved.push_back(static_cast<int>(i) + 1);
  }
  return moved;
}

TEST(PackingController, DoublesAtTheTenthStepAndEveryFourth) {
  PackingController controller(16);
  const std::vector<MicroOpTimes> shorter(30, {.expert_s = 1, .alltoall_s = 2});
  EXPECT_EQ(decision_steps(controller, shorter), (std::vector<int>{10, 14, 18, 22}));
  EXPECT_EQ(controller.packing(), 16) << "no more than a device can hold";
}

TEST(PackingController, KeepsWhereTheExpertsTakeAsLong) {
  PackingController controller(16);
  EXPECT_TRUE(decision_steps(controller, std::vector<MicroOpTimes>(40, {1, 1})).empty());
  EXPECT_EQ(controller.packing(), 1);
  EXPECT_FALSE(PackingController(4).end_step(10)) << "nothing recorded";
}

TEST(PackingController, ForgetsWhatAnEarlierPackingTook) {
  PackingController controller(16);
  std::vector<MicroOpTimes> steps(10, {.expert_s = 1, .alltoall_s = 100});
  steps.resize(14, {.expert_s = 3, .alltoall_s = 2});
  EXPECT_EQ(decision_steps(controller, steps), (std::vector<int>{10}));
}

// Experts that take p times as long packed p-fold, AlltoAlls that shrink: ends at the first power of two whose experts
// take at least as long, for any two curves.
TEST(PackingController, EndsWhereTheRuleDoes) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0.05, 4);
  for (int draw = 0; draw < 500; ++draw) {
    const double expert_s = uniform(random), alltoall_s = uniform(random), falls = uniform(random) / 4;
    const auto expert_at = [&](int p) { return expert_s * p; };
    const auto alltoall_at = [&](int p) { return alltoall_s / (1 + falls * (p - 1)); };
    int rule = 1;
    while (rule < 16 && expert_at(rule) < alltoall_at(rule)) rule *= 2;
    PackingController controller(16);
    for (int step = 1; step <= 40; ++step) {
      controller.record({expert_at(controller.packing()), alltoall_at(controller.packing())});
      controller.end_step(step);
    }
    EXPECT_EQ(controller.packing(), rule);
  }
}

}  // namespace
}  // namespace moe
