#pragma once
// The ranks that a bench runs on.
#include <algorithm>
#include <memory>
#include <vector>

#include "moe/comm/world.h"
#include "moe/device/kind.h"
#include "moe/measure/core_probe.h"

namespace moe::measure {

/// Says what the ranks are: threads of this process, which share one GPU, or the processes of a run, one rank each.
struct BenchRanks {
  World* processes = nullptr;  // all of them call what is given these ranks; none: threads
  DeviceKind device = DeviceKind::cpu;
  int threads = 1;  // that each rank computes with on the CPU
  AttentionBy attention = AttentionBy::own;
  std::shared_ptr<CoreTimes> cores = std::make_shared<CoreTimes>();  // of all that is measured on these ranks

  /// Says whether this process decides by the clock, and keeps what was found.
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
