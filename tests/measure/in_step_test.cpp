#include <algorithm>
#include <gtest/gtest.h>

#include "moe/measure/layers/overlap.h"
#include "moe/measure/layers/rank_run.h"
#include "tests/schedule/any_decision.h"

namespace moe::measure {
namespace {

LayerCase small_case() {
  const LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 2};
  return complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
}

TEST(LockstepBinding, EveryTaskOfASerialPlanWaitsForTheOneBefore) {
  for (const Schedule* schedule : any_decision::fitting(small_case())) {
    const Plan plan = build_plan(*schedule, small_case(), any_decision::any_decision(*schedule, small_case(), 1, 4));
    const Plan serial = serial_plan(plan);
    check_plan(serial);
    ASSERT_EQ(serial.tasks().size(), plan.tasks().size());
    for (size_t i = 1; i < serial.tasks().size(); ++i) {
      const std::vector<int>& after = serial.tasks()[i].after;
      EXPECT_EQ(std::ranges::count(after, static_cast<int>(i) - 1), 1) << serial.tasks()[i].name();
      EXPECT_EQ(serial.tasks()[i].lane, plan.tasks()[i].lane);
    }
  }
}

class Spans {
 public:
  // [rank]: start and end of the only task.
  explicit Spans(std::vector<TaskTime> ranks) : begin_s_(ranks.size(), 100), machines_(ranks.size(), {"one", 2}) {
    for (const TaskTime& t : ranks) ranks_.push_back({t});
  }
  Spans& begin(size_t rank, double at_s, std::string machine, int cores) {
    begin_s_[rank] = at_s;
    machines_[rank] = {std::move(machine), cores};
    return *this;
  }
  double computation() const { return seconds(GroupKind::none); }
  double collective() const { return seconds(GroupKind::ep); }

 private:
  double seconds(GroupKind group) const {
    Task task;
    task.group = group;
    return lockstep_seconds(task, ranks_, begin_s_, machines_);
  }
  RankTimes ranks_;
  std::vector<double> begin_s_;
  std::vector<RankMachine> machines_;
};

TEST(LockstepBinding, AComputationTakesItsShareOfTheCores) {
  EXPECT_DOUBLE_EQ(Spans({{1, 3}, {1, 3}}).computation(), 2);
  EXPECT_DOUBLE_EQ(Spans({{1, 3}, {1.5, 3.5}}).computation(), 2);              // woken later
  EXPECT_DOUBLE_EQ(Spans({{1, 3}, {1, 6}}).computation(), 5);                  // the slowest
  EXPECT_DOUBLE_EQ(Spans({{1, 3}, {1, 3}, {3, 5}, {3, 5}}).computation(), 4);  // four ranks by turns on two cores
  EXPECT_DOUBLE_EQ(Spans({{1, 5}, {1, 5}, {1, 5}, {1, 5}}).computation(), 4);  // the same, interrupting each other
  EXPECT_DOUBLE_EQ(Spans({{1, 3}}).computation(), 2);                          // a core stays free
  EXPECT_DOUBLE_EQ(Spans({{1, 3}, {0, 0}}).computation(), 2);                  // another stage's
  EXPECT_DOUBLE_EQ(Spans({{1, 3}, {1, 3}, {3, 5}}).computation(), 3);          // of three one waits
}

TEST(LockstepBinding, ACollectiveTakesFromTheLastArrivalToTheLastEnd) {
  EXPECT_DOUBLE_EQ(Spans({{1, 3}, {2, 3.5}}).collective(), 1.5);
  EXPECT_DOUBLE_EQ(Spans({{1, 4}, {2, 3}}).collective(), 2);
}

TEST(LockstepBinding, ClocksOfOtherMachinesAreNotCompared) {
  Spans apart({{1, 3}, {1, 4}});
  apart.begin(1, 9000, "other", 2);
  EXPECT_DOUBLE_EQ(apart.computation(), 3);
  EXPECT_DOUBLE_EQ(apart.collective(), 2);  // the one that waits for no other
  Spans shifted({{1, 3}, {0.5, 2.5}});
  shifted.begin(1, 100.5, "one", 2);  // its pass began half a second later
  EXPECT_DOUBLE_EQ(shifted.collective(), 2);
}

}  // namespace
}  // namespace moe::measure
