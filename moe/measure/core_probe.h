#pragma once
// The present speed of the ranks' cores relative to their best. Other guests of a machine's host, heat and power slow
// all of its cores for seconds, and a process can read little about it.
#include <algorithm>
#include <memory>
#include <vector>

#include "moe/base/device_kind.h"
#include "moe/comm/world.h"

namespace moe::measure {

/// A fixed piece of work: multiply-adds over an array that stays in a core's caches.
class CoreProbe {
 public:
  CoreProbe();
  /// Returns the seconds of this thread's processor time that the work takes, 0.1 to 0.5 ms in an optimized build.
  /// Waiting for a core is not included.
  double seconds();

 private:
  double rounds_s(int rounds);
  std::vector<float> numbers_;
};

/// Cores are slow if a probe takes more than this multiple of its best time.
inline constexpr double kSlowCores = 1.1;

/// The best time of a probe on each rank so far.
class CoreTimes {
 public:
  /// Takes probes, [rank][round], of equally many ranks in each call. Returns the ratio of the median probe to the best
  /// so far, on the rank with the largest ratio: at least 1, and 1 at first; 0 if the clock is too coarse.
  double add(const std::vector<std::vector<double>>& probe_s);

  /// Returns the ratio of the best so far to the best of `later`, on the rank with the largest ratio; at least 1. Above
  /// kSlowCores, all measurements until now were on slow cores.
  double over(const CoreTimes& later) const;

  /// Uses one of the eight repeats that a run of the program has for passes on slow cores: cores that stay slow are a
  /// property of the machine. Returns false if none is left.
  bool takes_repeat() { return repeats_left_-- > 0; }

 private:
  std::vector<double> best_s_;  // by rank: the best median
  int repeats_left_ = 8;
};

/// Makes Google Benchmark run all benchmarks registered later in turns: the repetitions of all, shuffled.
void interleave_repetitions();

// The ranks of a benchmark.

/// The kind of the ranks: threads of this process, which share one GPU, or the processes of a run, one rank each.
struct BenchRanks {
  World* processes = nullptr;  // all processes make the same calls; null: threads
  DeviceKind device = DeviceKind::cpu;
  int threads = 1;  // threads with which each rank computes on the CPU
  AttentionBy attention = AttentionBy::own;
  std::shared_ptr<CoreTimes> cores = std::make_shared<CoreTimes>();  // speeds in all measurements on these ranks

  /// Returns whether this process decides by the clock, and keeps the results.
  bool is_leader() const { return processes == nullptr || moe::is_leader(*processes); }
  /// Returns the least of all processes' `own`; all of them call it.
  double least(double own) const {
    if (processes == nullptr) return own;
    for (const auto& found : gather(*processes, std::vector<std::vector<double>>{{own}}))
      own = std::min(own, found.front());
    return own;
  }
};

}  // namespace moe::measure
