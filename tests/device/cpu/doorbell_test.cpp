#include "moe/device/cpu/doorbell.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace moe {
namespace {

TEST(DoorbellTest, CountsItsRings) {
  cpu::Doorbell bell;
  EXPECT_EQ(bell.rings(), 0u);
  for (int i = 0; i < 5; ++i) bell.ring();
  EXPECT_EQ(bell.rings(), 5u);
}

TEST(DoorbellTest, TimesOutWithoutARing) {
  cpu::Doorbell bell;
  const double begin = now_s();
  EXPECT_FALSE(bell.wait_until([] { return false; }, begin + 0.02));
  EXPECT_GE(now_s(), begin + 0.02);
  EXPECT_FALSE(bell.wait_until([] { return false; }, begin)) << "a deadline in the past";
  EXPECT_TRUE(bell.wait_until([] { return true; }, begin)) << "ready wins over the deadline";
}

TEST(DoorbellTest, NoRingIsLostAmongManySleepers) {
  cpu::Doorbell bell;
  std::atomic<int> round{0}, answers{0};
  constexpr int kSleepers = 6, kRounds = 2000;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < kSleepers; ++i)
    sleepers.emplace_back([&] {
      for (int mine = 1; mine <= kRounds; ++mine) {
        bell.wait_until([&] { return round >= mine; });
        ++answers;
        bell.ring();
      }
    });
  for (int current = 1; current <= kRounds; ++current) {
    round = current;
    bell.ring();
    bell.wait_until([&] { return answers == current * kSleepers; });
  }
  for (auto& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(answers, kRounds * kSleepers);
}

}  // namespace
}  // namespace moe
