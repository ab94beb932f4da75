// The replay against a second one that steps through time: lanes start what is ready, the clock jumps to the next end.
#include <algorithm>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <limits>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/schedule/schedule.h"
#include "moe/simulator/simulator.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

// Knows nothing of ids' order: it reads the lanes' queues and the dependencies alone.
class Clockwork {
 public:
  Clockwork(const Structure& structure, const std::vector<double>& seconds) : s_(structure), seconds_(seconds) {
    for (const Lane& lane : s_.lanes) queues_.emplace_back(lane.queue.begin(), lane.queue.end());
    busy_until_.assign(s_.lanes.size(), -1);
    result_.start_s.assign(s_.tasks.size(), -1);
    result_.end_s.assign(s_.tasks.size(), -1);
    result_.lane_busy_s.assign(s_.lanes.size(), 0);
  }

  Timeline run() {
    size_t waiting = s_.tasks.size();
    for (double now = 0; waiting > 0; now = next_end(now)) {
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t lane = 0; lane < queues_.size(); ++lane)
          if (start_next(lane, now)) moved = true, --waiting;
      }
    }
    for (const double end : result_.end_s) result_.makespan_s = std::max(result_.makespan_s, end);
    return result_;
  }

 private:
  bool start_next(size_t lane, double now) {
    if (queues_[lane].empty() || busy_until_[lane] > now) return false;
    const Task& task = s_.tasks.at(queues_[lane].front());
    for (const int p : task.after) {
      const double end = result_.end_s.at(p);
      if (end < 0 || end > now) return false;
    }
    const double length = seconds_.at(task.id);
    result_.start_s[task.id] = now;
    result_.end_s[task.id] = busy_until_[lane] = now + length;
    result_.lane_busy_s[lane] += length;
    queues_[lane].pop_front();
    return true;
  }

  double next_end(double now) const {
    double next = std::numeric_limits<double>::infinity();
    for (const double end : result_.end_s)
      if (end > now) next = std::min(next, end);
    return next;
  }

  const Structure& s_;
  const std::vector<double>& seconds_;
  std::vector<std::deque<int>> queues_;
  std::vector<double> busy_until_;
  Timeline result_;
};

struct RandomPlan {
  Structure structure;
  std::vector<double> seconds;  // small whole numbers, so that sums are exact and ties frequent
};

RandomPlan random_plan(uint64_t seed) {
  uint64_t index = 0;
  const auto below = [&](int n) { return static_cast<int>(random_bits(seed, 1, index++) % static_cast<uint64_t>(n)); };
  RandomPlan plan;
  const int lanes = 1 + below(6), tasks = 1 + below(60), density = 1 + below(12);
  plan.structure.lanes.resize(lanes);
  for (int id = 0; id < tasks; ++id) {
    Task task;
    task.id = id;
    task.lane = below(lanes);
    for (int p = 0; p < id; ++p)
      if (below(density) == 0) task.after.push_back(p);
    plan.structure.lanes[task.lane].queue.push_back(id);
    plan.seconds.push_back(below(4) == 0 ? 0 : below(20));
    plan.structure.tasks.push_back(std::move(task));
  }
  return plan;
}

void expect_same(const Timeline& found, const Timeline& expected, const std::string& where) {
  ASSERT_EQ(found.start_s, expected.start_s) << where;
  ASSERT_EQ(found.end_s, expected.end_s) << where;
  ASSERT_EQ(found.lane_busy_s, expected.lane_busy_s) << where;
  ASSERT_EQ(found.makespan_s, expected.makespan_s) << where;
}

TEST(Replay, IsTheClockworkOnRandomPlans) {
  size_t tasks = 0, dependencies = 0, waits = 0;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    const RandomPlan plan = random_plan(seed);
    const Timeline found = simulate(plan.structure, plan.seconds);
    expect_same(found, Clockwork(plan.structure, plan.seconds).run(), "seed " + std::to_string(seed));
    if (testing::Test::HasFailure()) return;
    tasks += plan.structure.tasks.size();
    for (const Task& task : plan.structure.tasks) dependencies += task.after.size();
    for (const Lane& lane : plan.structure.lanes) {
      double busy_until = 0;
      for (const int id : lane.queue) {
        waits += found.start_s[id] > busy_until;
        busy_until = found.end_s[id];
      }
    }
  }
  RecordProperty("tasks", static_cast<int>(tasks));
  EXPECT_GT(tasks, 400000u);
  EXPECT_GT(dependencies, tasks);
  EXPECT_GT(waits, tasks / 10) << "hardly any task waits for another lane";
}

TEST(Replay, IsTheClockworkOnEverySchedule) {
  const LayerCase shape = complete({}, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
  uint64_t index = 0;
  for (const Schedule& schedule : schedules())
    for (uint64_t seed = 1; seed <= 9; ++seed) {
      if (!any_decision::fits(schedule, shape)) continue;
      const Decision d = any_decision::any_decision(schedule, shape, seed);
      const Plan plan = build_plan(schedule, shape, d);
      for (int draw = 0; draw < 50; ++draw) {
        std::vector<double> seconds;
        for (size_t c = 0; c < plan.works.size(); ++c)
          seconds.push_back(static_cast<double>(random_bits(3, 0, index++) % 100));
        expect_same(simulate(*plan.structure, seconds), Clockwork(*plan.structure, seconds).run(),
                    fmt::format("{} r {} {}, seed {}", schedule.name, d.degree_forward, d.degree_backward, seed));
        if (testing::Test::HasFailure()) return;
      }
    }
}

TEST(Replay, MakespanIsTheTimelines) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const RandomPlan plan = random_plan(seed);
    const Replay replay(plan.structure);
    const Timeline t = replay.timeline(plan.seconds);
    std::vector<double> ends;
    EXPECT_EQ(replay.makespan(plan.seconds, ends), t.makespan_s) << "seed " << seed;
    EXPECT_EQ(ends, t.end_s) << "seed " << seed;
  }
}

TEST(Replay, OfNothingTakesNoTime) {
  EXPECT_EQ(simulate(Structure{}, {}).makespan_s, 0);
  Structure idle;
  idle.lanes.resize(2);
  EXPECT_EQ(simulate(idle, {}).lane_busy_s, (std::vector<double>{0, 0}));
}

TEST(Replay, RefusesMoreLanesThanItHolds) {
  Structure s = random_plan(4).structure;
  s.lanes.resize(kMaxLanes);
  EXPECT_NO_THROW(Replay{s});
  s.lanes.resize(kMaxLanes + 1);
  EXPECT_THROW(Replay{s}, Unsupported);
}

TEST(Replay, RefusesWhatItWouldMisread) {
  const RandomPlan plan = random_plan(4);
  ASSERT_GT(plan.structure.tasks.size(), 3u);
  const auto refused = [&](const std::function<void(Structure&)>& change) {
    Structure s = plan.structure;
    change(s);
    EXPECT_THROW(Replay{s}, WrongResult);
  };
  refused([](Structure& s) { s.tasks[1].after = {2}; });
  refused([](Structure& s) { s.tasks[1].after = {1}; });
  refused([](Structure& s) {  // issue order and lane order differ
    for (Task& task : s.tasks) task.lane = 0;
    for (Lane& lane : s.lanes) lane.queue.clear();
    for (const Task& task : s.tasks) s.lanes[0].queue.insert(s.lanes[0].queue.begin(), task.id);
  });
  refused([](Structure& s) {  // queued on another lane than its own
    s.lanes.resize(s.lanes.size() + 1);
    s.tasks[0].lane = static_cast<int>(s.lanes.size()) - 1;
  });
}

}  // namespace
}  // namespace moe
