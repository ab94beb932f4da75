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
