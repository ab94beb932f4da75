#pragma once
// One schedule of a bench, from its proof to its times.
#include <memory>
#include <optional>
#include <vector>

#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/pass_times.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/measure/layers/run_times.h"

namespace moe::measure {

struct Benched {
  const PlannedRun* planned = nullptr;
  Plan proven;  // a smaller layer's, where the reference of the one that is timed is too large
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
  bool trains() const { return run.plan.vocabulary > 0; }
  std::vector<RankRun*> runs() const {
    std::vector<RankRun*> all;
    for (const auto& rank : ranks) all.push_back(rank.get());
    return all;
  }
};

}  // namespace moe::measure
