// Upper bounds; of 200 sleeps a tenth is let run in time on a busy machine too.
#include <algorithm>
#include <cstdio>
#include <gtest/gtest.h>
#include <vector>

#include "moe/device/stream.h"

namespace moe {
namespace {

TEST(SleepTest, HitsItsDeadlineWithinMicroseconds) {
  std::vector<double> late;
  for (int i = 0; i < 200; ++i) {
    const double deadline = now_s() + 0.001;
    sleep_until_s(deadline);
    late.push_back(now_s() - deadline);
  }
  std::sort(late.begin(), late.end());
  EXPECT_GE(late.front(), 0);
  std::printf("sleep_until_s: late by %.2f us in the median, %.2f us at worst\n", late[100] * 1e6, late.back() * 1e6);
  EXPECT_LT(late[20], 20e-6);
}

TEST(SleepTest, ADeadlineInThePastReturnsAtOnce) {
  const double begin = now_s();
  sleep_until_s(begin - 1);
  sleep_until_s(0);
  EXPECT_LT(now_s() - begin, 0.5);
}

}  // namespace
}  // namespace moe
