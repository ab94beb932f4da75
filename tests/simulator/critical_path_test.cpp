// The critical path and slacks, against replays with one task made longer.
#include <algorithm>
#include <gtest/gtest.h>
#include <random>

#include "moe/schedule/schedule.h"
#include "moe/simulator/simulator.h"

namespace moe {
namespace {

struct Times {
  std::vector<double> start_s, end_s;
  double makespan() const { return *std::ranges::max_element(end_s); }
};

// Each task as soon as its lane and its inputs are free.
Times replayed(const Structure& structure, const std::vector<double>& seconds) {
  Times times{std::vector<double>(seconds.size()), std::vector<double>(seconds.size())};
  std::vector<double> free_at(structure.lanes.size());
  for (const Task& task : structure.tasks) {
    double& lane = free_at[task.lane];
    double start = lane;
    for (const int id : task.after) start = std::max(start, times.end_s[id]);
    times.start_s[task.id] = start;
    lane = times.end_s[task.id] = start + seconds[task.id];
  }
  return times;
}

TEST(CriticalPath, IsAsLongAsTheRunAndSlackIsWhatATaskMayTakeLonger) {
  std::mt19937_64 draw(7);
  std::uniform_real_distribution<double> any(0.1, 2);
  const LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .top_k = 1};
  const LayerCase shape = complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
  for (const char* schedule : {"ds-moe", "fsmoe", "tutel-improved", "lina"})
    for (int repeat = 0; repeat < 20; ++repeat) {
      const Schedule& asked = find_schedule(schedule);
      const int r = asked.degrees == DegreePolicy::one ? 1 : 1 + repeat % 3;
      const Plan plan = build_plan(asked, shape, {.degree_forward = r, .degree_backward = r});
      std::vector<double> seconds(plan.tasks().size());
      for (double& s : seconds) s = any(draw);
      const Times times = replayed(*plan.structure, seconds);
      const CriticalPath path = critical_path(*plan.structure, times.start_s, times.end_s);
      double length = 0;
      for (size_t id = 0; id < seconds.size(); ++id) {
        if (path.on_path[id]) {
          length += seconds[id];
          EXPECT_NEAR(path.slack_s[id], 0, 1e-9) << plan.tasks()[id].name();
        }
        std::vector<double> longer = seconds;
        longer[id] += path.slack_s[id];
        EXPECT_NEAR(replayed(*plan.structure, longer).makespan(), times.makespan(), 1e-9) << plan.tasks()[id].name();
        longer[id] += 0.01;
        EXPECT_NEAR(replayed(*plan.structure, longer).makespan(), times.makespan() + 0.01, 1e-9)
            << plan.tasks()[id].name();
      }
      EXPECT_NEAR(length, times.makespan(), 1e-9) << schedule;
    }
}

// A measured task starts some time after what it waited for: the time that a thread takes to wake up, or to get a core.
TEST(CriticalPath, OfMeasuredTimesHasNoSlack) {
  std::mt19937_64 draw(11);
  std::uniform_real_distribution<double> length(0.1, 2), gap(0, 1.5);
  const LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .top_k = 1};
  const LayerCase shape = complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
  for (const char* schedule : {"ds-moe", "fsmoe", "lina"})
    for (int repeat = 0; repeat < 20; ++repeat) {
      const Schedule& asked = find_schedule(schedule);
      const int r = asked.degrees == DegreePolicy::one ? 1 : 1 + repeat % 3;
      const Plan plan = build_plan(asked, shape, {.degree_forward = r, .degree_backward = r});
      std::vector<double> late(plan.tasks().size()), seconds = late;
      for (size_t id = 0; id < late.size(); ++id) seconds[id] = length(draw) + (late[id] = gap(draw));
      Times times = replayed(*plan.structure, seconds);
      for (size_t id = 0; id < late.size(); ++id) times.start_s[id] += late[id];
      const CriticalPath path = critical_path(*plan.structure, times.start_s, times.end_s);
      for (size_t id = 0; id < late.size(); ++id) {
        if (path.on_path[id]) {
          EXPECT_NEAR(path.slack_s[id], 0, 1e-9) << plan.tasks()[id].name();
        }
        std::vector<double> longer = seconds;
        longer[id] += path.slack_s[id];
        EXPECT_NEAR(replayed(*plan.structure, longer).makespan(), times.makespan(), 1e-9) << plan.tasks()[id].name();
      }
    }
}

}  // namespace
}  // namespace moe
