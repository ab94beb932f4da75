#pragma once
// Exact replay of a structure whose lanes slow each other down while they run. Between two events (a task starts or
// ends) every running task has a constant rate, so that time jumps from event to event. Tasks of a stage slow each
// other (slowdown.h): its ranks are alike.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "moe/cost/simulator.h"
#include "moe/cost/slowdown.h"

namespace moe {

/// A structure compiled for replay under one contention. With all factors 1 and no shared network its times are those
/// of Replay, bit for bit. A replay costs some tens of nanoseconds a task and allocates nothing once `ends` is large
/// enough.
class FluidReplay {
 public:
  static constexpr size_t kMaxLanes = 64;  // of all stages together

  /// Throws WrongResult for what can't be replayed (see Replay), BadInput for a factor below 1.
  FluidReplay(const Structure& structure, const GroupNetworks& networks, const Contention& contention);

  /// Seconds until the last task ends. `seconds`: by work class, of a task alone. `ends` is left holding each task's
  /// end.
  double makespan(std::span<const double> seconds, std::vector<double>& ends) const;
  /// A lane's busy time is the time its tasks took, slowed as they were.
  Timeline timeline(std::span<const double> seconds) const;

 private:
  class Run;
  struct Row {
    uint32_t task, work_class, first_dependency;
    Resource resource;
  };
  struct Dependency {
    uint32_t lane, count;  // met once that lane has ended so many tasks
  };
  struct LaneRows {
    uint32_t first, end, stage;
  };
  void add_lane(const Structure& structure, size_t lane, const GroupNetworks& networks);
  void add_dependencies(const Structure& structure, const Task& task);
  void compile_slowdowns();

  std::vector<Row> rows_;                 // lane by lane, in queue order; one more as end mark
  std::vector<Dependency> dependencies_;  // at most one a lane
  std::vector<LaneRows> lanes_;
  std::vector<uint32_t> place_;  // of a task in its lane's queue
  Slowdown slowdown_;
  std::array<uint32_t, kResources> step_{};
  // By sum of the steps of a stage's running tasks: the slowdown of each resource.
  std::vector<std::array<double, kResources>> slowdowns_;
};

/// Convenience: the timeline of a structure with seconds by class.
Timeline fluid_timeline(const Structure& structure, const GroupNetworks& networks, const Contention& contention,
                        std::span<const double> seconds);

/// The replay that a plan needs: Replay's, or under contention and for lanes that share a network this one's.
Timeline timeline_of(const Plan& plan, std::span<const double> seconds, const Contention& contention);

}  // namespace moe
