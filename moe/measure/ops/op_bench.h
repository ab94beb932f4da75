#pragma once
// The benchmark of single ops, in which all groups of a kind run the op at once. Google Benchmark runs them with one
// iteration per repetition and manual time, the maximum over ranks; each repetition is a sample.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "moe/measure/ops/rank_ops.h"

namespace moe::measure {

struct OpSettings {
  int repetitions = 5;
  double timeout_s = 60;
  /// Runs of an op in one sample; 0: one for threads; for processes as many as fill 10 ms, at most 20.
  int iterations = 0;
  int warm_ups = 1;   // runs before the samples
  bool check = true;  // check the first run's result
  double max_s = 0;   // seconds after which cases get only kMinSamples and none is timed again; 0: no limit
};

/// Number of samples that a case gets even after the time limit.
inline constexpr int kMinSamples = 2;

struct OpResult {
  std::vector<std::vector<double>> seconds;  // [repetition][rank], seconds of one iteration, divided by the dilation
  int64_t overruns = 0;                      // number among all ranks and repetitions
  int iterations = 1;                        // iterations in each sample
  bool out_of_time = false;                  // fewer samples than repetitions, because of OpSettings::most_s
  WrongElements wrong;                       // errors in the checked run before the timing
};

/// Callbacks for the results, on ranks that lead.
struct OpSink {
  /// Called when a case has all its samples. Series (OpCase::series) are in order and their cases consecutive, in any
  /// order within a series.
  std::function<void(const OpCase&, const OpResult&)> done;
  /// Called after each series and each repetition of it; returns the cases to time once more. An empty function repeats
  /// none.
  std::function<std::vector<size_t>(std::span<const size_t> series)> again = {};
};

/// Checks and times cases. Every process must call it with the same cases. `open`: ascending indices of the cases to
/// time; only that of the leader counts. Throws RankFailure if a rank fails.
void bench_ops(const BenchRanks& ranks, const std::vector<OpCase>& cases, const OpSettings& settings,
               const OpSink& sink, const std::vector<size_t>& open);

}  // namespace moe::measure
