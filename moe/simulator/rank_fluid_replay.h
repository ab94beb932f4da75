#pragma once
// The replay of a structure on all ranks of a cluster, for ranks that differ and whose lanes slow each other. It works
// as RankReplay, except that on each rank a running task has FluidReplay's rate, given the tasks that run there at the
// time, and a collective has the rate of its slowest rank. A rank that waits for others in a collective does not work
// and does not slow its other tasks.
#include <cstdint>
#include <span>
#include <vector>

#include "moe/simulator/rank_replay.h"
#include "moe/simulator/slowdown.h"

namespace moe {

/// A structure compiled for replays under one Contention. If all factors are 1 and no lanes share a network, its
/// outcome is that of RankReplay. A replay takes some hundred nanoseconds per task and rank.
class RankFluidReplay {
 public:
  /// Throws WrongResult as RankReplay does, BadInput for a factor below 1.
  RankFluidReplay(const Structure& structure, const ParallelShape& parallel, const GroupNetworks& networks,
                  const Contention& contention);

  /// Replays the structure. `seconds`: for each task id, its seconds without contention. Throws BadInput as check_noise
  /// does. Waiting is counted as in RankReplay, with the tasks' durations under contention.
  RankOutcome replay(std::span<const double> seconds, const RankNoise& noise, int samples = 1) const;

  int ranks() const { return stages_ * places_; }

 private:
  class Run;
  struct Row {
    uint32_t first_run = 0;  // first of its runs: one per group, or per rank
    uint32_t group_size = 1, group_step = 1;
    int stage = 0, layer = 0;
    TaskKind kind{};
    Resource resource = Resource::none;
    std::vector<uint32_t> sources, followers;  // tasks that it waits for, at most one per lane; tasks that wait for it

    uint32_t run_of(uint32_t place) const {
      const uint32_t span = group_size * group_step;
      return first_run + place / span * group_step + place % group_step;
    }
    /// Calls body(place) for every rank of a run.
    template <class Body>
    void for_each_place(uint32_t run, Body body) const {
      const uint32_t group = run - first_run;
      const uint32_t first = group / group_step * group_size * group_step + group % group_step;
      for (uint32_t i = 0; i < group_size; ++i) body(first + i * group_step);
    }
  };
  void add_row(const Task& task, const ParallelShape& parallel);

  int stages_ = 1, places_ = 0, layers_ = 1;  // places_: ranks per stage
  uint32_t runs_ = 0;
  std::vector<Row> rows_;  // in issue order
  SlowdownTable slowdowns_;
};

/// Replays a plan on all ranks, by RankFluidReplay if there is contention or lanes share a network, else by RankReplay.
RankOutcome replay_ranks(const Plan& plan, std::span<const double> seconds, const Contention& contention,
                         const RankNoise& noise, int samples = 1);

}  // namespace moe
