#pragma once
// How fast the ranks' cores are against what they were. Other guests of a machine's host, heat and power slow all
// of its cores for seconds, and little that a process can read says so.
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
  /// Returns what the work takes of this thread's processor time, 0.1 to 0.5 ms where it is optimized. Waiting for a
  /// core is not in it.
  double seconds();

 private:
  double rounds_s(int rounds);
  std::vector<float> numbers_;
};

/// Cores on which a probe takes over so many times as long as at its best are slow.
inline constexpr double kSlowCores = 1.1;

/// Keeps the best that a probe took on each rank so far.
class CoreTimes {
 public:
  /// Takes probes, [rank][round], always of as many ranks. Returns how many times its best so far the median probe took
  /// on the rank that is slowed most: at least 1, as at first; 0 where the clock can't tell.
  double add(const std::vector<std::vector<double>>& probe_s);

  /// Returns how many times as long the best so far took as the best of `later`, of the rank where it is most; at least
  /// 1. What was measured until now was on slow cores throughout, where that is above kSlowCores.
  double over(const CoreTimes& later) const;

  /// Takes one of the eight repeats that a run of the program may make of passes on slow cores: cores that stay slow
  /// are the machine's. Returns false where none is left.
  bool takes_repeat() { return repeats_left_-- > 0; }

 private:
  std::vector<double> best_s_;  // by rank: of medians
  int repeats_left_ = 8;
};

/// Makes Google Benchmark run what is registered from now on in turns: repetitions of all, shuffled.
void interleave_repetitions();

// The ranks that a bench runs on.

/// What the ranks are: threads of this process, which share one GPU, or the processes of a run, one rank each.
struct BenchRanks {
  World* processes = nullptr;  // all of them call what is given these ranks; none: threads
  DeviceKind device = DeviceKind::cpu;
  int threads = 1;  // that each rank computes with on the CPU
  AttentionBy attention = AttentionBy::own;
  std::shared_ptr<CoreTimes> cores = std::make_shared<CoreTimes>();  // of all that is measured on these ranks

  /// Returns whether this process decides by the clock, and keeps what was found.
  bool leads() const { return processes == nullptr || moe::leads(*processes); }
  /// Returns the least of what the processes found, each its `own`; all of them call it.
  double least(double own) const {
    if (processes == nullptr) return own;
    for (const auto& found : gather(*processes, std::vector<std::vector<double>>{{own}}))
      own = std::min(own, found.front());
    return own;
  }
};

}  // namespace moe::measure
