#pragma once
// Times single ops, all groups of a kind at once, through Google Benchmark: one iteration per repetition, manual time =
// maximum over ranks, repetitions = samples.
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
  int iterations = 0;  // runs of an op in one sample; 0: 1 for threads, for processes as many as last 10 ms, at most 20
  int warm_ups = 1;    // runs before the samples
  bool check = true;   // check the first run's result
  double most_s = 0;   // limit after which a case gets kFewestSamples and none is timed again; 0: no limit
};

/// Samples that a case gets however long they take.
inline constexpr int kFewestSamples = 2;

struct OpResult {
  std::vector<std::vector<double>> seconds;  // [repetition][rank], seconds of one iteration, divided by the dilation
  int64_t overruns = 0;                      // among ranks x repetitions
  int iterations = 1;                        // iterations in each sample
  bool out_of_time = false;                  // whether it has fewer samples than repetitions (OpSettings::most_s)
  WrongElements wrong;                       // errors in the run before the timing
};

/// Callbacks for the results, on ranks that lead.
struct OpSink {
  /// Called when a case has all its samples: in order of series (OpCase::series, whose cases are consecutive), in any
  /// order within a series.
  std::function<void(const OpCase&, const OpResult&)> done;
  /// Returns, after each series and each repeat of it, which of its cases to time once more; empty: none.
  std::function<std::vector<size_t>(std::span<const size_t> series)> again = {};
};

/// Checks and times every case. Every process of the ranks calls it, with the same cases. Throws RankFailure if a rank
/// fails. `open`: indices of the cases to time, ascending, on ranks that lead.
void bench_ops(const BenchRanks& ranks, const std::vector<OpCase>& cases, const OpSettings& settings,
               const OpSink& sink, const std::vector<size_t>& open);

}  // namespace moe::measure
