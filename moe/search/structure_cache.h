#pragma once
// Keeps structures compiled for replay, built once: a grid's layers share them.
#include <map>
#include <memory>
#include <optional>

#include "moe/cost/fluid_replay.h"
#include "moe/schedule/schedule.h"

namespace moe::search {

struct CompiledStructure {
  explicit CompiledStructure(const StructureKey& key)
      : structure(build_structure(key)), replay(*structure), networks(key.networks) {
    for (const Lane& lane : structure->lanes) shares_a_network |= lane.kind == LaneKind::gradient;
  }
  /// Returns the seconds until the last task ends, under the contention that there is.
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

/// Keeps structures until they are too many, then lets go of all; who asked for one keeps it as long as it wants.
class StructureCache {
 public:
  std::shared_ptr<const CompiledStructure> get(const StructureKey& key) {
    if (const auto known = entries_.find(key); known != entries_.end()) return known->second;
    if (kept_tasks_ > kMostTasks) entries_.clear(), kept_tasks_ = 0;
    auto made = std::make_shared<const CompiledStructure>(key);
    kept_tasks_ += std::ssize(made->structure->tasks);
    return entries_.emplace(key, std::move(made)).first->second;
  }

 private:
  static constexpr int64_t kMostTasks = 1'000'000;  // some 200 MB

  std::map<StructureKey, std::shared_ptr<const CompiledStructure>> entries_;
  int64_t kept_tasks_ = 0;
};

}  // namespace moe::search
