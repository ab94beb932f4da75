#pragma once
// Times single ops, all groups of a kind at once, through Google Benchmark: one iteration a repetition, manual time =
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
  int iterations = 0;  // of an op in one sample; 0: of threads 1, of processes as many as last 10 ms, at most 20
  int warm_ups = 1;    // runs before the samples
  bool check = true;   // look at the first run's result
  double most_s = 0;   // once all ops took longer, a case gets kFewestSamples, and none is timed again; 0: any time
};

/// Samples that a case has however long they take.
inline constexpr int kFewestSamples = 2;

struct OpResult {
  std::vector<std::vector<double>> seconds;  // [repetition][rank], of one iteration, divided by the dilation
  int64_t overruns = 0;                      // of ranks x repetitions
  int iterations = 1;                        // in each sample
  bool out_of_time = false;                  // it has fewer samples than repetitions (OpSettings::most_s)
  WrongElements wrong;                       // of the run before the timing
};

/// Takes the results, on ranks that lead.
struct OpSink {
  /// Called when a case has all its samples: in order of series (OpCase::series, which stand together in the cases),
  /// in any order within one.
  std::function<void(const OpCase&, const OpResult&)> done;
  /// Returns, after each series and each repeat of it, which of its cases to time once more; none: it is enough.
  std::function<std::vector<size_t>(std::span<const size_t> series)> again = {};
};

/// Checks and times every case. Every process of the ranks calls it, with the same cases. Throws RankFailure if a rank
/// fails. `open`: indices of the cases to time, ascending, where the ranks lead.
void bench_ops(const BenchRanks& ranks, const std::vector<OpCase>& cases, const OpSettings& settings,
               const OpSink& sink, const std::vector<size_t>& open);

}  // namespace moe::measure
