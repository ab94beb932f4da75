#pragma once
// One schedule of a benchmark, from its verification to its times.
#include <memory>
#include <optional>
#include <vector>

#include "moe/comm/world.h"
#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/overlap.h"
#include "moe/measure/layers/rank_run.h"

namespace moe::measure {

/// The attempts at passes that something else disturbs.
inline constexpr int kAttempts = 3;
/// The factor of a disturbed schedule's next passes, because delays matter less in longer ones.
inline constexpr double kLonger = 2;

// Fills a plan's MeasuredRun from its passes on all ranks.

/// Sets all fields of `run` that follow from passes, using its plan and its dilation. `in_step`: the tasks ran in step
/// (rank_run.h).
void take_times(PassTimes passes, const std::vector<RankMachine>& machines, bool in_step, MeasuredRun& run);

/// Returns a number that is larger for a more disturbed run: for a paced run the excess of the median pass over the
/// fastest one, divided by the latter; for others the slowdown of the cores.
double disturbance(const MeasuredRun& run);

/// Returns the mean micro-ops of each pass's forward, in seconds of the model.
std::vector<MicroOpTimes> micro_op_times(const PassTimes& passes, const std::vector<RankMachine>& machines,
                                         const MeasuredRun& run);

/// A plan for a certain number of experts per device.
struct PackedPlan {
  const PlannedRun* planned = nullptr;
  Plan runs = {};
  Plan proven = {};                     // a smaller layer's, where the reference of the one that is timed is too large
  std::vector<RankTimes> unpaced = {};  // by pass, where a pace is to be chosen
};

struct Benched {
  std::vector<PackedPlan> plans;  // by doublings of the experts per device; `current` runs
  size_t current = 0;
  std::optional<PackingController> controller;  // none: experts stay where they are
  size_t recorded = 0;                          // passes of the current plan that it knows
  MeasuredRun run;
  std::optional<MeasuredRun> best;              // the least disturbed attempt whose tasks kept their paces
  std::unique_ptr<Pacer> pacer;                 // null: its tasks don't slow each other down
  std::vector<std::unique_ptr<RankRun>> ranks;  // ranks of this process
  std::vector<PassNumbers> timed;               // timed passes, by rank here
  std::vector<std::vector<double>> replayed;    // seconds of replayed passes, by rank here
  Training training;

  /// Keeps the run if it is less disturbed than all earlier ones.
  void keep_best() {
    const bool valid = overrun_share(run) <= kOverrunLimit;
    if (valid && (!best || disturbance(run) < disturbance(*best))) best = run;
  }
  /// Replaces the run by the one that keep_best kept, if any; `attempt` counts the repeats before the last run.
  void use_best(int attempt) {
    if (!best) return;
    run = *best;
    run.repeats = attempt;
  }
  const PackedPlan& plan() const { return plans[current]; }
  bool trains() const { return run.plan.vocabulary > 0; }
  std::vector<RankRun*> runs() const {
    std::vector<RankRun*> all;
    for (const auto& rank : ranks) all.push_back(rank.get());
    return all;
  }
};

/// A limit of wall time on which all ranks agree at the same point, although their clocks differ.
class TimeLimit {
 public:
  TimeLimit() = default;
  /// Starts now. `most_s` 0: no limit.
  explicit TimeLimit(double most_s) : most_s_(most_s), begin_s_(now_s()) {}
  /// Returns whether the limit is exceeded on any rank. All ranks call it, on their own threads.
  bool exceeded(Device& device, Communicator& everyone, Stream& stream) const;
  /// Does the same for callers outside of World::run. All processes call it.
  bool exceeded(World& world) const;

 private:
  double most_s_ = 0, begin_s_ = 0;
};

}  // namespace moe::measure
