#pragma once
// Replays exactly a structure whose lanes slow each other down while they run. Between two events (a task starts or
// ends) every running task has a constant rate, so that time jumps from event to event. Tasks of a stage slow each
// other (slowdown.h): its ranks are alike.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "moe/simulator/simulator.h"
#include "moe/simulator/slowdown.h"

namespace moe {

/// A makespan along a line on which every task's seconds change: its seconds at the line's begin, its slope
/// from there, and how far that slope holds, which is as far as no two ends change places.
struct LineSpan {
  double seconds = 0, slope = 0, reach = 0;
};

/// A structure compiled for replay under one contention. With all factors 1 and no shared network its times are
/// those of Replay, bit for bit. A replay costs some tens of nanoseconds a task and allocates nothing once `ends` is
/// large enough.
class FluidReplay {
 public:
  /// Throws WrongResult for what can't be replayed (see Replay), BadInput for a factor below 1.
  FluidReplay(const Structure& structure, const GroupNetworks& networks, const Contention& contention);

  /// Returns when the last task ends. `seconds`: by task id, of a task alone. `ends` is left holding each task's
  /// end.
  double makespan(std::span<const double> seconds, std::vector<double>& ends) const;
  /// Replays as makespan() does where the seconds of task t change by slopes[t] with every step along a line. The
  /// result is exact: between two events all rates are constant, so that ends are linear in the step while their order
  /// stays.
  LineSpan along(std::span<const double> seconds, std::span<const double> slopes) const;
  /// Returns all times; a lane's busy time is the time that its tasks took, slowed as they were.
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
    uint32_t lane, count;  // met once that lane has ended so many tasks
  };
  struct LaneRows {
    uint32_t first, end, stage;
  };
  void add_lane(const Structure& structure, size_t lane, const GroupNetworks& networks);

  std::vector<Row> rows_;                 // lane by lane, in queue order; one more as end mark
  std::vector<Dependency> dependencies_;  // at most one a lane
  std::vector<LaneRows> lanes_;
  std::vector<uint32_t> place_;  // of a task in its lane's queue
  SlowdownTable slowdowns_;
};

/// Returns the timeline of a structure with seconds by task id, for those who replay it once.
Timeline fluid_timeline(const Structure& structure, const GroupNetworks& networks, const Contention& contention,
                        std::span<const double> seconds);

/// Returns the timeline by the replay that a plan needs: Replay or, under contention and for lanes that share a
/// network, FluidReplay.
Timeline timeline_of(const Plan& plan, std::span<const double> seconds, const Contention& contention);

}  // namespace moe
