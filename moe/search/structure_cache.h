#pragma once
// Structures compiled for replay, built once: a grid's layers share them.
#include <map>
#include <memory>
#include <optional>

#include "moe/cost/fluid_replay.h"
#include "moe/schedule/schedule.h"

namespace moe {

struct CompiledStructure {
  explicit CompiledStructure(const StructureKey& key)
      : structure(build_structure(key)), replay(*structure), networks(key.networks) {
    for (const Lane& lane : structure->lanes) shares_a_network |= lane.kind == LaneKind::gradient;
  }
  /// Seconds until the last task ends, under the contention that there is.
  double makespan(std::span<const double> seconds, const Contention& contention, std::vector<double>& ends) const {
    if (contention.none() && !shares_a_network) return replay.makespan(seconds, ends);
    return under(contention).makespan(seconds, ends);
  }
  const FluidReplay& under(const Contention& contention) const {
    if (!fluid || fluid_contention != contention) {
      fluid.emplace(*structure, networks, contention);
      fluid_contention = contention;
    }
    return *fluid;
  }

  std::shared_ptr<const Structure> structure;
  Replay replay;
  GroupNetworks networks;
  bool shares_a_network = false;
  mutable std::optional<FluidReplay> fluid;  // of the contention last asked for
  mutable Contention fluid_contention;
};

class StructureCache {
 public:
  const CompiledStructure& get(const StructureKey& key) {
    auto& entry = entries_[key];
    if (!entry) entry = std::make_unique<CompiledStructure>(key);
    return *entry;
  }

 private:
  std::map<StructureKey, std::unique_ptr<CompiledStructure>> entries_;
};

}  // namespace moe
