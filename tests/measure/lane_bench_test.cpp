#include "moe/measure/ops/lane_bench.h"

#include <gtest/gtest.h>

#include "tests/measure/host_cluster.h"

namespace moe::measure {
namespace {

TEST(LaneBench, ASlowdownIsOfMediansAndNeverASpeedup) {
  EXPECT_EQ((LaneSlowdown{"inter", "intra", {1, 2, 9}, {3, 4, 50}}.factor()), 2);
  EXPECT_EQ((LaneSlowdown{"inter", "intra", {4}, {3}}.factor()), 1);
}

TEST(LaneBench, AnOverlapIsTheShareOfTheShorterThatIsHidden) {
  EXPECT_EQ((LaneOverlap{"inter", "compute", {4}, {2}, {4}}.overlap()), 1);
  EXPECT_EQ((LaneOverlap{"inter", "compute", {4}, {2}, {6}}.overlap()), 0);
  EXPECT_EQ((LaneOverlap{"inter", "compute", {4, 4, 4}, {2, 2, 2}, {4, 5, 6}}.overlap()), 0.5);
}

// Of each lane the largest op alone is run: the others' would never end.
TEST(LaneBench, LanesThatHaveAnOpAreRunBesideEachOther) {
  std::vector<OpCase> cases;
  for (const OpCase& c : real_cases(host_cluster(), "local", {.begin = 1 << 10, .end = 1 << 16, .factor = 64}))
    if (c.op == Op::alltoall || c.op == Op::allreduce || (c.op == Op::gemm && cases.back().op != Op::gemm))
      cases.push_back(c);
  ASSERT_EQ(cases.size(), 5U);
  cases[0].modelled_s = 1e6;
  OpSettings settings;
  settings.repetitions = 2;
  const LaneTimes times = bench_lanes({}, cases, settings);
  ASSERT_EQ(times.slowdowns.size(), 2U);
  EXPECT_EQ(times.slowdowns[0].lane + times.slowdowns[0].by, "intercompute");
  EXPECT_EQ(times.slowdowns[1].lane + times.slowdowns[1].by, "computeinter");
  ASSERT_EQ(times.overlaps.size(), 1U);
  EXPECT_EQ(times.overlaps[0].lane + times.overlaps[0].other, "intercompute");
  for (const auto* samples : {&times.slowdowns[0].alone_s, &times.slowdowns[0].beside_s, &times.overlaps[0].both_s}) {
    ASSERT_EQ(samples->size(), 2U);
    for (const double seconds : *samples) EXPECT_GT(seconds, 0);
  }
}

}  // namespace
}  // namespace moe::measure
