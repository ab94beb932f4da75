#pragma once
// Times single ops on four ranks, all groups of a kind at once, through Google Benchmark: one iteration a repetition,
// manual time = maximum over ranks, repetitions = samples.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "moe/measure/op_cases.h"

namespace moe {

struct OpResult {
  std::vector<std::vector<double>> seconds;  // [repetition][rank], divided by the dilation
  int64_t overruns = 0;                      // of ranks x repetitions
  std::string wrong;                         // what the check before the timing found; empty: right
};

/// Checks and times every case; `done` is called when one has all its samples: in order of series (OpCase::series,
/// which stand together in `cases`), in any order within one. Throws RankFailure if a rank fails.
void bench_ops(const std::vector<OpCase>& cases, int repetitions, double timeout_s,
               const std::function<void(const OpCase&, const OpResult&)>& done);

}  // namespace moe
