#pragma once
// Replays exactly a structure whose lanes slow each other while they run. Between two events (a task starts or ends),
// every running task has a constant rate, so time jumps from event to event. Tasks of a stage slow each other
// (slowdown.h); all of its ranks behave the same.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "moe/simulator/simulator.h"
#include "moe/simulator/slowdown.h"

namespace moe {

/// A makespan along a line on which every task's seconds change: its seconds at the start of the line, its slope there,
/// and the step up to which the slope holds, because until then no two ends change their order.
struct LineSpan {
  double seconds = 0, slope = 0, reach = 0;
};

/// A structure compiled for replay under one contention. With all factors 1 and no shared network, its times equal
/// those of Replay exactly. A replay takes some tens of nanoseconds per task and allocates nothing if `ends` is large
/// enough.
class FluidReplay {
 public:
  /// Throws WrongResult for a structure that can't be replayed (see Replay), BadInput for a factor below 1.
  FluidReplay(const Structure& structure, const GroupNetworks& networks, const Contention& contention);

  /// Returns the end of the last task. `seconds`: by task id, of a task without contention. On return, `ends` has the
  /// end of each task.
  double makespan(std::span<const double> seconds, std::vector<double>& ends) const;
  /// Replays as makespan() does while the seconds of task t change by slopes[t] per step along a line. The result is
  /// exact: between two events all rates are constant, so ends are linear in the step as long as their order is the
  /// same.
  LineSpan along(std::span<const double> seconds, std::span<const double> slopes) const;
  /// Returns all times; a lane's busy time includes the slowdown of its tasks.
  Timeline timeline(std::span<const double> seconds) const;

 private:
  struct PlainClock;
  struct LineClock;
  template <class Clock>
  class Run;
  struct Row {
    uint32_t task, first_dependency;
    Resource resource;
  };
  struct Dependency {
    uint32_t lane, count;  // met when the lane has ended `count` tasks
  };
  struct LaneRows {
    uint32_t first, end, stage;
  };
  void add_lane(const Structure& structure, size_t lane, const GroupNetworks& networks);

  std::vector<Row> rows_;                 // by lane in queue order, and an end mark
  std::vector<Dependency> dependencies_;  // at most one per lane
  std::vector<LaneRows> lanes_;
  std::vector<uint32_t> place_;  // by task, its position in its lane's queue
  SlowdownTable slowdowns_;
};

/// Returns the timeline of a structure with seconds by task id, for callers that replay it once.
Timeline fluid_timeline(const Structure& structure, const GroupNetworks& networks, const Contention& contention,
                        std::span<const double> seconds);

/// Returns a plan's timeline by the replay that it needs: FluidReplay under contention or if lanes share a network,
/// else Replay.
Timeline timeline_of(const Plan& plan, std::span<const double> seconds, const Contention& contention);

}  // namespace moe
