#pragma once
// Replays a structure exactly: a lane runs its tasks in order, each as soon as its inputs are there.
#include <cstdint>
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// Seconds from the start of the first task, by task id, and a lane's busy time by lane.
struct Timeline {
  std::vector<double> start_s, end_s;
  std::vector<double> lane_busy_s;
  double makespan_s = 0;
};

inline constexpr size_t kMaxLanes = 768;  // of all stages together

/// Checks what every replay needs: queues are the tasks in issue order, and a task waits only for earlier ones. Then it
/// can't deadlock. Returns the structure; throws WrongResult naming the task or lane, Unsupported for too many lanes.
const Structure& checked(const Structure& structure);

/// A structure compiled for replay; one replay of n tasks costs a few nanoseconds a task and allocates nothing.
class Replay {
 public:
  explicit Replay(const Structure& structure);

  /// Returns the seconds until the last task ends. `seconds`: by task id. `ends` is scratch, left holding each
  /// task's end.
  double makespan(std::span<const double> seconds, std::vector<double>& ends) const;
  Timeline timeline(std::span<const double> seconds) const;

 private:
  struct Row {
    uint32_t first_dependency, lane;
  };
  std::vector<Row> rows_;               // in issue order, one more as end mark
  std::vector<uint32_t> dependencies_;  // those that cross lanes
  size_t lanes_ = 0;
};

/// Returns the timeline of a structure with seconds by task id, for those who replay it once.
Timeline simulate(const Structure& structure, std::span<const double> seconds);

/// Returns when tasks that end at `end_s` start: each as soon as all that it waits for has ended.
std::vector<double> starts_of(const Structure& structure, std::span<const double> end_s);
/// Returns the seconds from when a phase's first chunk starts, so, to the end of its last one, forwards that run again
/// aside.
double moe_seconds(const Structure& structure, std::span<const double> end_s, Phase phase);

/// Finds which tasks of a run decide how long it takes, and how much later each other one might have ended.
struct CriticalPath {
  std::vector<bool> on_path;    // by task id
  std::vector<double> slack_s;  // likewise: the run lasts as long if the task alone ends that much later
};

/// Returns path and slack of any times of a plan's tasks, simulated or measured. The path goes back from the task that
/// ends last, always to what ended last of all that a task waited for: its dependencies and the task before it on its
/// lane. Slack assumes that every other task keeps its length and ends no sooner after what it waited for: a measured
/// task that started late, because its thread got no core, would start as late again. So tasks on the path have none.
CriticalPath critical_path(const Structure& structure, std::span<const double> start_s, std::span<const double> end_s);

}  // namespace moe
