#include "moe/exec/executor.h"

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "tests/device/at_once_device.h"
#include "tests/exec/executor_conformance.h"
#include "tests/exec/lane_builder.h"

namespace moe {
namespace {

INSTANTIATE_TEST_SUITE_P(OnThreads, ExecutorConformance,
                         testing::Values(DeviceFactory{"cpu", make_cpu_device},
                                         DeviceFactory{"at_once", make_at_once_device}),
                         ExecutorConformance::name);

void nap(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Runs a function as each task's work and keeps the order in which work began and ended.
class Recording : public Binding {
 public:
  struct Stamps {
    int begin = -1, end = -1;
    Pace pace;
  };

  Recording(size_t tasks, std::function<void(const Task&)> work) : stamps_(tasks), work_(std::move(work)) {}

  void issue(const Task& task, Stream& stream, Pace pace) override {
    Stamps& stamps = stamps_[task.id];
    stamps.pace = pace;
    stream.launch([this, &task, &stamps](void*) {
      stamps.begin = clock_++;
      work_(task);
      stamps.end = clock_++;
    });
  }

  const std::vector<Stamps>& stamps() const { return stamps_; }

 private:
  std::vector<Stamps> stamps_;
  std::function<void(const Task&)> work_;
  std::atomic<int> clock_{0};
};

class Nothing : public Binding {
 public:
  void issue(const Task&, Stream&, Pace) override {}
};

/// Every task began after what it waits for, and after its lane's predecessor, had ended: by the stamps of the work and
/// by the times reported.
void expect_ordered(const Structure& structure, const std::vector<Recording::Stamps>& stamps, const RunTimes& times) {
  std::vector<int> last(structure.lanes.size(), -1);
  for (const Task& task : structure.tasks) {
    const auto id = static_cast<size_t>(task.id);
    std::vector<int> before = task.after;
    int& lane_last = last[task.lane];
    if (lane_last >= 0) before.push_back(lane_last);
    lane_last = task.id;
    for (const int other : before) {
      EXPECT_LT(stamps[other].end, stamps[id].begin) << other << " before " << id;
      EXPECT_LE(times.tasks[other].end_s, times.tasks[id].start_s) << other << " before " << id;
    }
    EXPECT_GE(times.tasks[id].start_s, 0);
    EXPECT_GE(times.tasks[id].end_s, times.tasks[id].start_s);
  }
}

class ExecutorTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device();
};

TEST_F(ExecutorTest, AnEmptyStructureAndAnEmptyBinding) {
  Nothing nothing;
  EXPECT_TRUE(Executor(*device_, std::make_shared<const Structure>()).run(nothing).tasks.empty());
  Executor executor(*device_, random_structure(1, 3, 100).build());
  for (int round = 0; round < 10; ++round) EXPECT_EQ(executor.run(nothing).tasks.size(), 100u);
}

TEST_F(ExecutorTest, ADiamondAcrossLanesRunsInOrderAndItsArmsTogether) {
  LaneBuilder lanes(3);
  const int top = lanes.add(0);
  const int left = lanes.add(1, {top});
  const int right = lanes.add(2, {top});
  lanes.add(0, {left, right});
  const auto structure = lanes.build();
  std::atomic<int> inside{0};
  Recording recording(4, [&](const Task& task) {
    if (task.id != left && task.id != right) return;
    ++inside;
    while (inside < 2) std::this_thread::yield();  // ends only if both arms run at once
  });
  Executor executor(*device_, structure);
  expect_ordered(*structure, recording.stamps(), executor.run(recording));
}

// A backward that does not run still orders the forwards before it and behind it, which use the same memory.
TEST_F(ExecutorTest, ForwardsAloneKeepTheOrderOfLanesThatMixPhases) {
  LaneBuilder lanes(3);
  const int first = lanes.add(0), backward = lanes.add(1, {first}), second = lanes.add(2, {backward});
  lanes.structure().tasks[backward].phase = Phase::backward;
  Recording recording(3, [&](const Task& task) { nap(task.id == first ? 20e-3 : 0); });
  Executor executor(*device_, lanes.build());
  const TaskTime before = executor.run(recording).tasks[backward];
  const int begun = recording.stamps()[backward].begin;
  const RunTimes& times = executor.run(recording, {}, Phase::forward);
  const auto stamps = [&](int task) { return recording.stamps()[task]; };
  EXPECT_LT(stamps(first).end, stamps(second).begin);
  EXPECT_LE(times.tasks[first].end_s, times.tasks[second].start_s);
  EXPECT_EQ(stamps(backward).begin, begun);
  EXPECT_EQ(times.tasks[backward].end_s, before.end_s);
}

// A task's settling is part of no task, whatever its pace: the next one is issued after it.
TEST_F(ExecutorTest, WhatSettlesATaskIsInNoTasksTime) {
  class Settling final : public Binding {
   public:
    void issue(const Task& task, Stream&, Pace) override { issued.push_back(task.id); }
    void finish_task(const Task& task, Stream& stream) override {
      issued.push_back(-1 - task.id);
      if (task.id > 0) return;
      stream.launch([](void*) { nap(30e-3); });
      stream.synchronize();
    }
    std::vector<int> issued;
  } binding;
  LaneBuilder lanes(1);
  lanes.add(0), lanes.add(0, {0});
  const RunTimes times = Executor(*device_, lanes.build()).run(binding, {2e-3, 0});
  EXPECT_EQ(binding.issued, (std::vector{0, -1, 1, -2}));
  constexpr double kRoundingS = 1e-9;  // of seconds since the machine started
  EXPECT_GE(times.tasks[0].end_s - times.tasks[0].start_s, 2e-3 - kRoundingS);
  EXPECT_GE(times.tasks[1].start_s - times.tasks[0].end_s, 30e-3 - kRoundingS);
  EXPECT_EQ(times.overruns, 0);
}

TEST_F(ExecutorTest, RandomStructuresKeepEveryDependency) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto structure = random_structure(seed, 1 + static_cast<int>(seed % 6), 120).build();
    Recording recording(120, [&](const Task& task) {
      if (random_uniform(seed, 1, static_cast<uint64_t>(task.id)) < 0.1) nap(1e-4);
    });
    Executor executor(*device_, structure);
    for (int round = 0; round < 3; ++round) expect_ordered(*structure, recording.stamps(), executor.run(recording));
  }
}

TEST_F(ExecutorTest, WorkSeesWhatItsDependenciesWrote) {
  const auto structure = random_structure(7, 4, 200).build();
  std::vector<int64_t> sums(200);  // plain on purpose: the executor alone orders the accesses
  Recording recording(200, [&](const Task& task) {
    int64_t sum = task.id + 1;
    for (const int before : task.after) sum += sums[before] % 1000003;
    sums[task.id] = sum;
  });
  std::vector<int64_t> expected(200);
  for (const Task& task : structure->tasks) {
    int64_t sum = task.id + 1;
    for (const int before : task.after) sum += expected[before] % 1000003;
    expected[task.id] = sum;
  }
  Executor executor(*device_, structure);
  for (int round = 0; round < 20; ++round) {
    std::fill(sums.begin(), sums.end(), -1);
    executor.run(recording);
    EXPECT_EQ(sums, expected);
  }
}

TEST_F(ExecutorTest, TimesAreOfTheRunAndHoldTheWork) {
  LaneBuilder lanes(2);
  const int first = lanes.add(0);
  lanes.add(1, {first});
  Recording recording(2, [](const Task&) { nap(0.01); });
  Executor executor(*device_, lanes.build());
  const double before = now_s();
  const RunTimes& times = executor.run(recording);
  EXPECT_GE(times.begin_s, before);
  EXPECT_GE(times.tasks[0].end_s - times.tasks[0].start_s, 0.01);
  EXPECT_GE(times.tasks[1].end_s, 0.02);
  EXPECT_LE(times.begin_s + times.tasks[1].end_s, now_s());
}

TEST_F(ExecutorTest, ComputationIsPacedHereAndACollectiveGetsItsPaceHandedOn) {
  LaneBuilder lanes(2);
  const int expert = lanes.add(0);
  const int dispatch = lanes.add(1, {expert}, GroupKind::ep);
  const int unpaced = lanes.add(0, {dispatch});
  Recording recording(3, [](const Task&) {});
  Executor executor(*device_, lanes.build());
  const RunTimes& times = executor.run(recording, {0.02, 3600, 0});
  const auto lasted = [&](int id) {
    const TaskTime& time = times.tasks[id];
    return time.end_s - time.start_s;
  };
  EXPECT_GE(lasted(expert), 0.02 - 1e-9);
  EXPECT_LT(lasted(dispatch), 600) << "the binding ignored the pace, and the executor must not hold a collective";
  EXPECT_GE(times.tasks[unpaced].start_s, 0.02);
  EXPECT_EQ(recording.stamps()[0].pace.at_least_s, 0);
  EXPECT_EQ(recording.stamps()[1].pace.at_least_s, 3600);
  EXPECT_NE(recording.stamps()[1].pace.overruns, nullptr);
  EXPECT_EQ(times.overruns, 0);
}

TEST_F(ExecutorTest, APacedRunEndsNoEarlierThanItsCriticalPath) {
  const auto structure = random_structure(11, 3, 40).build();
  std::vector<double> pace, earliest(40), free(3);
  for (const Task& task : structure->tasks) {
    pace.push_back(0.0005 + 0.002 * random_uniform(5, 0, static_cast<uint64_t>(task.id)));
    double& lane = free[task.lane];
    double start = lane;
    for (const int before : task.after) start = std::max(start, earliest[before]);
    lane = earliest[task.id] = start + pace.back();
  }
  Nothing nothing;
  Executor executor(*device_, structure);
  const RunTimes& times = executor.run(nothing, pace);
  for (size_t id = 0; id < 40; ++id) EXPECT_GE(times.tasks[id].end_s, earliest[id] - 1e-9) << "task " << id;
}

TEST_F(ExecutorTest, OverrunsAreThoseOfTheRun) {
  const auto structure = random_structure(3, 2, 6).build();
  Recording slow(6, [](const Task& task) { nap(task.id < 4 ? 0.005 : 0); });
  Nothing quick;
  Executor executor(*device_, structure);
  EXPECT_EQ(executor.run(slow, {0.001, 0.001, 0.001, 0.001, 0.2, 0.2}).overruns, 4);
  EXPECT_EQ(executor.run(quick, std::vector<double>(6, 0.1)).overruns, 0);
  EXPECT_EQ(executor.run(slow).overruns, 0);
}

// Two lanes share a resource: together they get no more of it than there is, and work that outlasts its pace is found
// out all the same.
TEST_F(ExecutorTest, WithAPacerTasksOfALaneSlowThoseOfAnother) {
  Pacer pacer(1, 1, [](std::span<const int> running, int) { return static_cast<double>(std::max(1, running[0])); });
  LaneBuilder lanes(2);
  for (int id = 0; id < 4; ++id) lanes.add(id % 2);
  const ContentionContext contended{&pacer, 0, std::vector<int>(4, 0)};
  Nothing nothing;
  Executor executor(*device_, lanes.build());
  const RunTimes& times = executor.run(nothing, std::vector<double>(4, 0.05), std::nullopt, contended);
  EXPECT_EQ(times.overruns, 0);
  for (const TaskTime& time : times.tasks) EXPECT_GE(time.end_s - time.start_s, 0.05);
  EXPECT_GE(std::max(times.tasks[2].end_s, times.tasks[3].end_s), 0.2 - 1e-9);
  Recording slow(4, [](const Task& task) { nap(task.id < 2 ? 0.02 : 0); });
  EXPECT_EQ(executor.run(slow, {0.002, 0.002, 1, 1}, std::nullopt, contended).overruns, 2);
  EXPECT_THROW(executor.run(nothing, std::vector<double>(4, 1), std::nullopt, {&pacer, 0, {}}), BadInput);
}

TEST_F(ExecutorTest, AFailedRunLeavesNothingInThePacer) {
  Pacer pacer(1, 1, [](std::span<const int> running, int) { return running[0] > 1 ? 1e9 : 1.0; });
  LaneBuilder lanes(1);
  lanes.add(0);
  Recording failing(1, [](const Task&) { throw std::runtime_error("fails"); });
  Nothing nothing;
  Executor executor(*device_, lanes.build());
  const ContentionContext contended{&pacer, 0, {0}};
  EXPECT_THROW(executor.run(failing, {0.001}, std::nullopt, contended), std::runtime_error);
  EXPECT_LT(executor.run(nothing, {0.001}, std::nullopt, contended).tasks[0].end_s, 300);
}

TEST_F(ExecutorTest, RefusesPacesOfAnotherPlanAndTasksOutOfOrder) {
  Nothing nothing;
  Executor executor(*device_, random_structure(3, 2, 10).build());
  EXPECT_THROW(executor.run(nothing, std::vector<double>(9, 0.001)), BadInput);
  LaneBuilder lanes(1);
  lanes.add(0);
  lanes.structure().tasks[0].after = {0};
  EXPECT_THROW(Executor(*device_, lanes.build()), WrongResult);
}

}  // namespace
}  // namespace moe
