#pragma once
// The state of one schedule in a benchmark, from its verification to its times.
#include <memory>
#include <optional>
#include <vector>

#include "moe/comm/world.h"
#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/overlap.h"
#include "moe/measure/layers/rank_run.h"

namespace moe::measure {

/// Largest number of attempts to time passes that other work on the machine disturbs.
inline constexpr int kAttempts = 3;
/// Factor on the dilation after a disturbed attempt, because delays matter less in longer passes.
inline constexpr double kLonger = 2;

// Functions that fill a MeasuredRun from passes on all ranks.

/// Sets all fields of `run` that are derived from passes; it must have its plan and dilation. `lockstep`: every task
/// began on all ranks together (rank_run.h).
void set_run_times(PassTimes passes, const std::vector<RankMachine>& machines, bool lockstep, MeasuredRun& run);

/// Returns a measure of the disturbance of a run, larger for more disturbed runs: for a paced run, the excess of the
/// median pass over the fastest one, divided by the latter; for others, the slowdown of the cores.
double disturbance(const MeasuredRun& run);

/// Returns, for each pass, the mean seconds of its forward's micro-ops, divided by the dilation.
std::vector<MicroOpTimes> micro_op_times(const PassTimes& passes, const std::vector<RankMachine>& machines,
                                         const MeasuredRun& run);

/// A plan for a certain number of experts per device.
struct PackedPlan {
  const PlannedRun* planned = nullptr;
  Plan runs = {};
  /// The plan that is verified: a smaller layer's if the timed layer is too large for a reference.
  Plan proven = {};
  std::vector<RankTimes> unpaced = {};  // for each unpaced pass, from which the dilation is chosen
};

struct BenchedRun {
  std::vector<PackedPlan> plans;  // entry i has 2^i times as many experts per device; `current` is the one that runs
  size_t current = 0;
  std::optional<PackingController> controller;  // empty: experts don't move
  size_t recorded = 0;                          // number of the current plan's passes that `controller` has recorded
  MeasuredRun run;
  std::optional<MeasuredRun> best;              // the least disturbed attempt without too many overruns
  std::unique_ptr<Pacer> pacer;                 // null: tasks don't slow each other
  std::vector<std::unique_ptr<RankRun>> ranks;  // ranks of this process
  std::vector<PackedPassTimes> timed;           // timed passes, for each rank of this process
  std::vector<std::vector<double>> replayed;    // seconds of replayed passes, for each rank of this process
  Training training;

  /// Keeps the run as `best` if it is valid and less disturbed than all earlier ones.
  void keep_best() {
    const bool valid = overrun_share(run) <= kOverrunLimit;
    if (valid && (!best || disturbance(run) < disturbance(*best))) best = run;
  }
  /// Replaces the run by `best`, if there is one. `attempt`: number of repeats before the last run.
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

/// A limit of wall time about which all ranks decide together, although their clocks differ.
class TimeLimit {
 public:
  TimeLimit() = default;
  /// Starts now. `most_s` 0: no limit.
  explicit TimeLimit(double max_s) : max_s_(max_s), begin_s_(now_s()) {}
  /// Returns whether the limit is exceeded on any rank. All ranks must call it, on their own threads.
  bool exceeded(Device& device, Communicator& world_comm, Stream& stream) const;
  /// The same for callers outside of World::run. All processes must call it.
  bool exceeded(World& world) const;

 private:
  double max_s_ = 0, begin_s_ = 0;
};

}  // namespace moe::measure
