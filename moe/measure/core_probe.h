#pragma once
// Probes of the current speed of the ranks' cores relative to their best. Other guests of the host, heat and power
// limits slow all cores of a machine for seconds, and a process cannot read that from the system.
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
  /// Does the work and returns its CPU time on this thread in seconds, 0.1 to 0.5 ms in an optimized build. Waiting for
  /// a core does not count.
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
  /// Adds probes [rank][round], always of the same ranks. Returns the ratio of a rank's median probe to its best so
  /// far, for the rank with the largest ratio: at least 1, exactly 1 in the first call; 0 if the clock is too coarse.
  double add(const std::vector<std::vector<double>>& probe_s);

  /// Returns the ratio of the best time so far to the best of `later`, for the rank with the largest ratio; at least 1.
  /// If it exceeds kSlowCores, all measurements so far were on slow cores.
  double ratio_to(const CoreTimes& later) const;

  /// Uses one of the eight repeats that a run of the program has for passes on slow cores; returns false if none is
  /// left. Cores that stay slow are a property of the machine.
  bool takes_repeat() { return repeats_left_-- > 0; }

 private:
  std::vector<double> best_s_;  // for each rank, its best median
  int repeats_left_ = 8;
};

/// Makes Google Benchmark run the repetitions of all benchmarks that are registered later in random order, instead of
/// one benchmark after the other.
void interleave_repetitions();

// The ranks of a benchmark.

/// The ranks: threads of this process, which share one GPU, or the processes of a run with one rank each.
struct BenchRanks {
  World* processes = nullptr;  // all processes make the same calls; null: threads
  DeviceKind device = DeviceKind::cpu;
  int threads = 1;  // CPU threads per rank
  AttentionBy attention = AttentionBy::own;
  std::shared_ptr<CoreTimes> cores = std::make_shared<CoreTimes>();  // core speeds in all measurements on these ranks

  /// Returns whether this process makes decisions that depend on the clock, and keeps the results.
  bool is_leader() const { return processes == nullptr || moe::is_leader(*processes); }
  /// Returns the minimum of `own` over all processes; all of them must call it.
  double min_over_processes(double own) const {
    if (processes == nullptr) return own;
    for (const auto& found : gather(*processes, std::vector<std::vector<double>>{{own}}))
      own = std::min(own, found.front());
    return own;
  }
};

}  // namespace moe::measure
