#pragma once
// The exact replay of a structure: each lane runs its tasks in order, each as soon as its inputs are ready.
#include <cstdint>
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// The start and end of each task, by id, in seconds from the start of the first one, and the busy seconds of each
/// lane.
struct Timeline {
  std::vector<double> start_s, end_s;
  std::vector<double> lane_busy_s;
  double makespan_s = 0;
};

inline constexpr size_t kMaxLanes = 768;  // limit for the lanes of all stages together

/// Returns the structure after checking the conditions under which a replay cannot deadlock: queues are in issue order,
/// and a task waits only for earlier tasks. Throws WrongResult naming task or lane, Unsupported for more than kMaxLanes
/// lanes.
const Structure& checked(const Structure& structure);

/// A structure compiled for replays. A replay takes a few nanoseconds per task and allocates no memory.
class Replay {
 public:
  explicit Replay(const Structure& structure);

  /// Returns the end of the last task, and writes the end of each task to `ends`. `seconds`: for each task id.
  double makespan(std::span<const double> seconds, std::vector<double>& ends) const;
  Timeline timeline(std::span<const double> seconds) const;

 private:
  struct Row {
    uint32_t first_dependency, lane;
  };
  std::vector<Row> rows_;               // in issue order, followed by an end mark
  std::vector<uint32_t> dependencies_;  // tasks on other lanes, by Row::first_dependency
  size_t lanes_ = 0;
};

/// Returns the timeline of a structure with seconds by task id, for callers that replay it once.
Timeline simulate(const Structure& structure, std::span<const double> seconds);

/// Returns the start of each task, given the ends of all tasks: the latest end of the tasks that it waits for.
std::vector<double> starts_of(const Structure& structure, std::span<const double> end_s);
/// Returns the seconds from the start of a phase's first chunked task (starts_of) to the end of its last one. Repeated
/// forwards do not count.
double moe_seconds(const Structure& structure, std::span<const double> end_s, Phase phase);

/// The tasks that determine the duration of a run, and the slack of all others.
struct CriticalPath {
  std::vector<bool> on_path;    // by task id
  std::vector<double> slack_s;  // by task id: how much later this task alone could end without a longer run
};

/// Returns path and slack for simulated or measured times of a plan's tasks. The path goes back from the task that ends
/// last, each time to the latest-ending task among those that the current one waited for: its dependencies and its
/// predecessor on the lane. Slack assumes that every other task keeps its duration and its delay after these tasks: a
/// measured task that started late, because its thread got no core, would start as late again. So tasks on the path
/// have no slack.
CriticalPath critical_path(const Structure& structure, std::span<const double> start_s, std::span<const double> end_s);

}  // namespace moe
