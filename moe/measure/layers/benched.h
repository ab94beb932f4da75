#pragma once
// One schedule of a bench, from its proof to its times.
#include <memory>
#include <optional>
#include <vector>

#include "moe/comm/world.h"
#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/overlap.h"
#include "moe/measure/layers/rank_run.h"

namespace moe::measure {

// Turns a plan's passes on all ranks into what its MeasuredRun says of them.

/// Sets all of `run` that passes tell, by its plan and its dilation. `in_step`: they were of tasks in step
/// (rank_run.h).
void take_times(PassTimes passes, const std::vector<RankMachine>& machines, bool in_step, MeasuredRun& run);

/// Returns a number that is greater for a more disturbed run: of a paced one how much longer the median pass took than
/// the fastest one, of the latter; of another the slowdown of its cores.
double disturbance(const MeasuredRun& run);

/// Returns the mean micro-ops of each pass's forward, in seconds of the model.
std::vector<MicroOpTimes> micro_op_times(const PassTimes& passes, const std::vector<RankMachine>& machines,
                                         const MeasuredRun& run);

/// A plan as it is run with so many experts a device.
struct PackedPlan {
  const PlannedRun* planned = nullptr;
  Plan runs = {};
  Plan proven = {};                     // a smaller layer's, where the reference of the one that is timed is too large
  std::vector<RankTimes> unpaced = {};  // by pass, where a pace is to be chosen
};

struct Benched {
  std::vector<PackedPlan> plans;  // by doublings of the experts a device, of which `current` runs
  size_t current = 0;
  std::optional<PackingController> controller;  // none: experts stay where they are
  size_t recorded = 0;                          // passes of the current plan that it knows
  MeasuredRun run;
  std::optional<MeasuredRun> best;              // the least disturbed attempt of those whose tasks kept their paces
  std::unique_ptr<Pacer> pacer;                 // null: its tasks don't slow each other
  std::vector<std::unique_ptr<RankRun>> ranks;  // of this process
  std::vector<PassNumbers> timed;               // by rank here
  std::vector<std::vector<double>> replayed;    // likewise: seconds of passes
  Training training;

  /// Keeps the run if it is less disturbed than all before.
  void keep_best() {
    const bool valid = overrun_share(run) <= kOverrunLimit;
    if (valid && (!best || disturbance(run) < disturbance(*best))) best = run;
  }
  const PackedPlan& plan() const { return plans[current]; }
  bool trains() const { return run.plan.vocabulary > 0; }
  std::vector<RankRun*> runs() const {
    std::vector<RankRun*> all;
    for (const auto& rank : ranks) all.push_back(rank.get());
    return all;
  }
};

/// A limit of wall time that every rank finds exceeded at the same point, whatever its own clock says.
class TimeLimit {
 public:
  TimeLimit() = default;
  /// Starts now. `most_s` 0: no limit.
  explicit TimeLimit(double most_s) : most_s_(most_s), begin_s_(now_s()) {}
  /// Returns whether the limit is exceeded on any rank. All ranks call it, on their own threads.
  bool exceeded(Device& device, Communicator& everyone, Stream& stream) const;
  /// Returns the same. All processes call it, outside of World::run.
  bool exceeded(World& world) const;

 private:
  double most_s_ = 0, begin_s_ = 0;
};

}  // namespace moe::measure
