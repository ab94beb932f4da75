// Tasks that slow each other down: only what holds however late a busy machine lets a thread run.
#include "moe/device/pacer.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "moe/device/stream.h"

namespace moe {
namespace {

void nap(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Tasks on resource 0 share it; one on resource 1 makes them `factor` times as long.
Pacer::Slowdown sharing(double factor) {
  return [factor](std::span<const int> running, int resource) {
    if (resource == 1) return 1.0;
    return std::max(1.0, static_cast<double>(running[0])) * (running[1] > 0 ? factor : 1.0);
  };
}

TEST(PacerTest, AloneATaskTakesItsTimeAndALateOneIsFoundOut) {
  Pacer pacer(1, 2, sharing(3));
  const double begin = now_s();
  const auto task = pacer.start({{0, 0}}, 0.02);
  pacer.finish(*task);
  EXPECT_GE(now_s() - begin, 0.02);
  EXPECT_FALSE(pacer.finish(*task)) << "its time has passed, though it is over";
  const auto late = pacer.start({{0, 0}}, 0.001);
  nap(0.01);
  EXPECT_FALSE(pacer.finish(*late));
}

TEST(PacerTest, TasksThatShareAResourceGetNoMoreOfItThanThereIs) {
  Pacer pacer(1, 2, sharing(1));
  const double begin = now_s();
  std::vector<std::thread> threads;
  std::vector<double> took(4);
  for (double& each : took)
    threads.emplace_back([&] {
      const double since = now_s();
      const auto task = pacer.start({{0, 0}}, 0.01);
      pacer.finish(*task);
      each = now_s() - since;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(now_s() - begin, 0.04 - 1e-9);
  for (const double each : took) EXPECT_GE(each, 0.01);
}

// Resource 0 loses 30 ms where a task of resource 1 begins beside it, or it beside one; the other loses nothing.
TEST(PacerTest, ATaskLosesAStallToEachThatItBeginsToRunBeside) {
  const auto stall = [](int resource, int by) { return resource == 0 && by == 1 ? 0.03 : 0.0; };
  Pacer pacer(2, 2, sharing(1), stall);
  const auto other = pacer.start({{0, 1}}, 3600), elsewhere = pacer.start({{1, 1}}, 3600);
  double begin = now_s();
  const auto later = pacer.start({{0, 0}}, 0.01);
  pacer.finish(*later);
  EXPECT_GE(now_s() - begin, 0.04);
  begin = now_s();
  const auto first = pacer.start({{0, 0}, {1, 0}}, 0.2);  // one on either rank, which cost it no more than one does
  const auto second = pacer.start({{1, 1}}, 3600);
  const bool beside = now_s() - begin < 0.2;
  const auto third = pacer.start({{0, 1}}, 3600);  // nor does this one, on the other rank than the second
  pacer.finish(*first);
  EXPECT_GE(now_s() - begin, beside ? 0.26 : 0.23);
  const auto nothing = pacer.start({{0, 0}}, 0);
  EXPECT_FALSE(pacer.finish(*nothing)) << "what takes no time begins beside nobody";
}

TEST(PacerTest, ATaskOfTwoRanksGoesAtTheSlowestOnesRate) {
  Pacer pacer(2, 2, sharing(3));
  const auto other = pacer.start({{1, 1}}, 3600);
  const double begin = now_s();
  const auto both = pacer.start({{0, 0}, {1, 0}}, 0.01);
  pacer.finish(*both);
  EXPECT_GE(now_s() - begin, 0.03);
}

TEST(PacerTest, WhatEndsOrIsDroppedSlowsNobodyAndWakesWhomItSlowed) {
  Pacer pacer(1, 2, sharing(1e6));
  for (const bool dropped : {true, false}) {
    auto other = pacer.start({{0, 1}}, dropped ? 3600 : 0.02);
    const auto slowed = pacer.start({{0, 0}}, 0.05);
    const double begin = now_s();
    std::thread thread([&] { pacer.finish(*slowed); });
    nap(0.01);
    if (!dropped) pacer.finish(*other);
    other.reset();
    thread.join();
    EXPECT_GE(now_s() - begin, 0.05);
    EXPECT_LT(now_s() - begin, 300);
  }
}

}  // namespace
}  // namespace moe
