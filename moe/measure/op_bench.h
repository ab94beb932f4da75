#pragma once
// Times single ops, all groups of a kind at once, through Google Benchmark: one iteration a repetition, manual time =
// maximum over ranks, repetitions = samples.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "moe/cost/profile.h"
#include "moe/measure/op_runner.h"

namespace moe {

struct OpSettings {
  int repetitions = 5;
  double timeout_s = 60;
  int iterations = 0;  // of an op in one sample; 0: of threads 1, of processes as many as last 10 ms, at most 20
  int warm_ups = 1;    // runs before the samples
  bool check = true;   // look at the first run's result
};

struct OpResult {
  std::vector<std::vector<double>> seconds;  // [repetition][rank], of one iteration, divided by the dilation
  int64_t overruns = 0;                      // of ranks x repetitions
  int iterations = 1;                        // in each sample
  WrongElements wrong;                       // of the run before the timing
};

/// Checks and times every case; `done` is called when one has all its samples: in order of series (OpCase::series,
/// which stand together in `cases`), in any order within one. Every process of the site calls it, with the same cases;
/// only where the site leads anything is `done`. Throws RankFailure if a rank fails. `open`: indices of those to time,
/// where the site leads.
void bench_ops(const Site& site, const std::vector<OpCase>& cases, const OpSettings& settings,
               const std::function<void(const OpCase&, const OpResult&)>& done, const std::vector<size_t>& open);

}  // namespace moe
