#pragma once
// Replays a structure exactly: a lane runs its tasks in order, each as soon as its inputs are ready.
#include <cstdint>
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// Seconds from the start of the first task, by task id, and the busy seconds of each lane.
struct Timeline {
  std::vector<double> start_s, end_s;
  std::vector<double> lane_busy_s;
  double makespan_s = 0;
};

inline constexpr size_t kMaxLanes = 768;  // in all stages together

/// Checks what every replay needs to be free of deadlocks: queues are in issue order, and a task waits only for earlier
/// ones. Returns the structure; throws WrongResult naming task or lane, Unsupported for too many lanes.
const Structure& checked(const Structure& structure);

/// A structure compiled for replay; a replay takes a few nanoseconds per task and allocates nothing.
class Replay {
 public:
  explicit Replay(const Structure& structure);

  /// Returns the seconds until the last task ends. `seconds`: by task id. `ends` is scratch; on return, it has each
  /// task's end.
  double makespan(std::span<const double> seconds, std::vector<double>& ends) const;
  Timeline timeline(std::span<const double> seconds) const;

 private:
  struct Row {
    uint32_t first_dependency, lane;
  };
  std::vector<Row> rows_;               // in issue order, and an end mark
  std::vector<uint32_t> dependencies_;  // dependencies between lanes
  size_t lanes_ = 0;
};

/// Returns the timeline of a structure with seconds by task id, for callers that replay it once.
Timeline simulate(const Structure& structure, std::span<const double> seconds);

/// Returns the starts of tasks that end at `end_s`: each as soon as all tasks that it waits for have ended.
std::vector<double> starts_of(const Structure& structure, std::span<const double> end_s);
/// Returns the seconds from the start of a phase's first chunk (starts_of) to the end of its last one, without repeated
/// forwards.
double moe_seconds(const Structure& structure, std::span<const double> end_s, Phase phase);

/// The tasks that decide how long a run takes, and by how much each other task could end later.
struct CriticalPath {
  std::vector<bool> on_path;    // by task id
  std::vector<double> slack_s;  // by task id: how much later the task alone could end without a longer run
};

/// Returns path and slack for any times of a plan's tasks, simulated or measured. The path goes back from the task that
/// ends last, always to the task that ended last of all that a task waited for: its dependencies and the task before it
/// on its lane. Slack assumes that every other task keeps its length and its delay after them: a measured task that
/// started late, because its thread got no core, would start as late again. So tasks on the path have none.
CriticalPath critical_path(const Structure& structure, std::span<const double> start_s, std::span<const double> end_s);

}  // namespace moe
