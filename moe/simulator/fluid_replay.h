#pragma once
// The exact replay of a structure whose lanes slow each other while they run. Between two events (the start or end of a
// task), every running task has a constant rate, so the replay goes from event to event. Tasks of a stage slow each
// other (slowdown.h); all ranks of a stage behave alike.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "moe/simulator/simulator.h"
#include "moe/simulator/slowdown.h"

namespace moe {

/// The makespan as a function of a step along which every task's seconds change linearly: its value at step 0, its
/// slope there, and the step up to which the slope is constant, because no two ends change their order before it.
struct LinearSegment {
  double seconds = 0, slope = 0, reach = 0;
};

/// A structure compiled for replays under one Contention. If all factors are 1 and no lanes share a network, its times
/// equal those of Replay exactly. A replay takes some tens of nanoseconds per task and allocates no memory if `ends` is
/// large enough.
class FluidReplay {
 public:
  /// Throws WrongResult for a structure that can't be replayed (see Replay), BadInput for a factor below 1.
  FluidReplay(const Structure& structure, const GroupNetworks& networks, const Contention& contention);

  /// Returns the end of the last task, and writes the end of each task to `ends`. `seconds`: for each task id, its
  /// seconds without contention.
  double makespan(std::span<const double> seconds, std::vector<double>& ends) const;
  /// Returns the makespan if the seconds of task t are seconds[t] + step slopes[t]. It is exact: between two events all
  /// rates are constant, so ends are linear in the step as long as their order does not change.
  LinearSegment replay_along(std::span<const double> seconds, std::span<const double> slopes) const;
  /// Returns the times of all tasks and lanes; a lane's busy time includes slowdowns.
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
    uint32_t lane, count;  // fulfilled once the lane has ended `count` tasks
  };
  struct LaneRows {
    uint32_t first, end, stage;
  };
  void add_lane(const Structure& structure, size_t lane, const GroupNetworks& networks);

  std::vector<Row> rows_;                 // for each lane in queue order, followed by an end mark
  std::vector<Dependency> dependencies_;  // at most one per lane
  std::vector<LaneRows> lanes_;
  std::vector<uint32_t> place_;  // for each task, its position in its lane's queue
  SlowdownTable slowdowns_;
};

/// Returns the timeline of a structure with seconds by task id, for callers that replay it once.
Timeline fluid_timeline(const Structure& structure, const GroupNetworks& networks, const Contention& contention,
                        std::span<const double> seconds);

/// Returns a plan's timeline, by FluidReplay if there is contention or lanes share a network, else by Replay.
Timeline timeline_of(const Plan& plan, std::span<const double> seconds, const Contention& contention);

}  // namespace moe
