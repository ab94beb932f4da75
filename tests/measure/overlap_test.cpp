#include "moe/measure/layers/overlap.h"

#include <gtest/gtest.h>

#include "tests/exec/lane_builder.h"

namespace moe::measure {
namespace {

// compute: 0-4, 6-8; inter: 0-2, 4-6; intra: 5-9.
Plan three_lanes() {
  LaneBuilder builder(3);
  builder.structure().lanes[1].kind = LaneKind::inter;
  builder.structure().lanes[2].kind = LaneKind::intra;
  builder.add(0), builder.add(1, {}, GroupKind::ep), builder.add(1, {}, GroupKind::ep);
  builder.add(2, {}, GroupKind::esp), builder.add(0);
  Plan plan;
  plan.structure = builder.build();
  return plan;
}
const std::vector<TaskTime> kTimes{{0, 4}, {0, 2}, {4, 6}, {5, 9}, {6, 8}};

TEST(Overlap, IsWhatCommunicationTakesAloneAndHowMuchRunsAtOnce) {
  const Overlap overlap = overlap_of(three_lanes(), kTimes);
  EXPECT_DOUBLE_EQ(overlap.exposed_s, 3);         // 4-6 and 8-9
  EXPECT_DOUBLE_EQ(overlap.efficiency, 5.0 / 8);  // 6 + 4 + 4 s in 9; at best in 6
}

TEST(Overlap, IsNoneOneAfterTheOtherAndWholeBesideEachOther) {
  const Plan plan = three_lanes();
  EXPECT_EQ(overlap_of(plan, std::vector<TaskTime>{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}}).efficiency, 0);
  EXPECT_EQ(overlap_of(plan, std::vector<TaskTime>{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {9, 10}}).efficiency, 0);  // a gap
  EXPECT_EQ(overlap_of(plan, std::vector<TaskTime>{{0, 2}, {0, 1}, {1, 2}, {0, 4}, {2, 4}}).efficiency, 1);
  EXPECT_EQ(overlap_of(plan, std::vector<TaskTime>{{0, 2}, {0, 1}, {1, 2}, {0, 4}, {2, 4}}).exposed_s, 0);
  EXPECT_EQ(overlap_of(plan, std::vector<TaskTime>{{0, 2}, {0, 0}, {0, 0}, {0, 0}, {2, 4}}).efficiency, 1);
}

// Two stages, three micro-batches, tasks of a second each: GPipe loses (p - 1) / (m + p - 1).
TEST(Bubble, IsWhatStagesWaitForEachOther) {
  LaneBuilder builder(4);  // compute and network of each stage
  for (size_t lane = 0; lane < 4; ++lane) builder.structure().lanes[lane].stage = static_cast<int>(lane / 2);
  std::vector<TaskTime> times;
  const auto add = [&](int lane, double start, TaskKind kind, double seconds = 1) {
    builder.add(lane);
    builder.structure().tasks.back().kind = kind;
    times.push_back({start, start + seconds});
  };
  for (int m = 0; m < 3; ++m) {
    add(0, m, TaskKind::expert), add(2, m + 1, TaskKind::expert);
    add(1, m, TaskKind::send, 1.5), add(3, 0, TaskKind::recv, 7);  // sends and receives wait
    add(2, m + 4, TaskKind::expert), add(0, m + 5, TaskKind::expert);
  }
  Plan plan;
  plan.structure = builder.build();
  EXPECT_DOUBLE_EQ(bubble_of(plan, times), 1.0 / 4);
  for (size_t i = 0; i < times.size(); ++i)  // what a rank of the first stage sees
    if (plan.tasks()[i].lane >= 2) times[i] = {};
  EXPECT_DOUBLE_EQ(working_seconds(plan, times), 6);
}

TEST(Bubble, CountsWhatRunsAtOnceOnce) {
  EXPECT_DOUBLE_EQ(working_seconds(three_lanes(), kTimes), 9);
  EXPECT_DOUBLE_EQ(bubble_of(three_lanes(), kTimes), 0);
  EXPECT_DOUBLE_EQ(bubble_of(three_lanes(), std::vector<TaskTime>{{0, 1}, {0, 1}, {3, 4}, {3, 4}, {3, 4}}), 0.5);
}

TEST(TaskTimes, ACollectiveTakesWhatItsLastRankSaw) {
  const std::vector<Task> tasks = three_lanes().tasks();
  const std::vector<std::vector<TaskTime>> ranks{kTimes, {{0, 5}, {1, 2}, {5, 6}, {5, 9}, {6, 7}}};
  EXPECT_EQ(own_seconds(tasks[0], ranks), 5);
  EXPECT_EQ(own_seconds(tasks[1], ranks), 1);
}

TEST(PassTimes, AreTurnedFromRanksToPasses) {
  EXPECT_EQ(by_pass({{1, 2, 3}, {4, 5, 6}}), (std::vector<std::vector<double>>{{1, 4}, {2, 5}, {3, 6}}));
}

TEST(TaskTimes, AreComparedByKindAndPhase) {
  const Plan plan = three_lanes();
  const auto rows = compare_tasks(plan, std::vector<double>{3, 2, 4, 1, 1}, std::vector<double>{3, 2, 2, 4, 0});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].kind, TaskKind::expert);
  EXPECT_EQ(rows[0].tasks, 2);
  EXPECT_EQ(rows[0].measured_s, 4);
  EXPECT_EQ(rows[0].median_ratio, 1);  // one of them has no prediction
  EXPECT_EQ(rows[1].kind, TaskKind::dispatch);
  EXPECT_EQ(rows[1].median_ratio, 1);  // of 1, 2, 0.25
  EXPECT_EQ(rows[1].worst_ratio, 0.25);
  EXPECT_EQ(rows[1].worst_task, plan.tasks()[3].name());
}

}  // namespace
}  // namespace moe::measure
