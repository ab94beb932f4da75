#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "moe/device/stream.h"
#include "moe/measure/layers/layer_bench.h"

namespace moe::measure {
namespace {

// Passes of two ranks, the second of which is the slower one.
MeasuredRun run_of(const std::vector<double>& totals_s, int64_t overruns = 0) {
  MeasuredRun run;
  for (const double total_s : totals_s) run.total_s.push_back({total_s / 2, total_s});
  run.overruns = overruns;
  run.paced_tasks = 200;
  return run;
}

TEST(Disturbed, IsARunOfManyOverrunsOrUnevenPasses) {
  EXPECT_FALSE(disturbed(run_of({1, 1, 1})));
  EXPECT_FALSE(disturbed(run_of({1, 1, 1}, 2)));
  EXPECT_TRUE(disturbed(run_of({1, 1, 1}, 3)));
  EXPECT_TRUE(disturbed(run_of({1.02, 1, 1.02})));
  EXPECT_FALSE(disturbed(run_of({1.009, 1, 1.3}))) << "one slow pass does not move the median";
}

TEST(Disturbed, IsNoRunWithoutPaces) {
  MeasuredRun run = run_of({1, 2, 3}, 200);
  run.paced_tasks = 0;
  EXPECT_FALSE(disturbed(run));
}

TEST(Disturbed, IsAnUnpacedRunOnSlowedCores) {
  MeasuredRun run = run_of({1, 1, 1});
  run.core_slowdown = 2;
  EXPECT_FALSE(disturbed(run)) << "paces say it of paced runs";
  run.paced_tasks = 0;
  EXPECT_TRUE(disturbed(run));
  run.core_slowdown = 1.05;
  EXPECT_FALSE(disturbed(run));
}

TEST(CoreTimes, AreAgainstEachRanksBestMedian) {
  CoreTimes cores;
  EXPECT_EQ(cores.add({{1, 9, 1}, {4, 4, 4}}), 1) << "one slow pass does not move the median";
  EXPECT_EQ(cores.add({{1, 1, 1}, {6, 6, 1}}), 1.5);
  EXPECT_EQ(cores.add({{0.5}, {4}}), 1) << "a new best of the first rank";
  EXPECT_EQ(cores.add({{1, 2}, {4, 4}}), 3);
  EXPECT_EQ(cores.add({}), 1);
  EXPECT_EQ(cores.add({{0}, {4}}), 0) << "a clock that ticks too seldom";
}

TEST(CoreTimes, TellHowSlowTheCoresWereOfWhatTheyHaveBeenSince) {
  CoreTimes cores;
  EXPECT_EQ(CoreTimes().ratio_to(cores), 1);
  cores.add({{2, 2, 3}, {4, 4, 4}});
  const CoreTimes then = cores;
  cores.add({{4, 4}, {3, 4}});
  EXPECT_EQ(then.ratio_to(cores), 4 / 3.5);
  cores.add({{1}, {4}});
  EXPECT_EQ(then.ratio_to(cores), 2);
  EXPECT_EQ(cores.ratio_to(then), 1);
}

TEST(CoreProbe, IsOfThisThreadsWorkAlone) {
  CoreProbe probe;
  int probes = 0;
  double alone_s = 0, crowded_s = 0;
  for (const double end_s = now_s() + 0.3; now_s() < end_s; ++probes) alone_s += probe.seconds();
  std::atomic<bool> ends{false};
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 4 * std::thread::hardware_concurrency(); ++i)
    others.emplace_back([&] {
      while (!ends) continue;
    });
  for (int i = 0; i < probes; ++i) crowded_s += probe.seconds();
  ends = true;
  for (std::thread& each : others) each.join();
  EXPECT_GT(alone_s, 0.1);
  EXPECT_LT(crowded_s, 2.5 * alone_s) << "a fifth of a core would take five times as long";
}

}  // namespace
}  // namespace moe::measure
