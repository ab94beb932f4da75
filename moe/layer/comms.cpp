#include "moe/layer/comms.h"

#include <algorithm>

#include "moe/base/check.h"

namespace moe {

LayerComms LayerComms::split(Communicator& world, const ParallelShape& parallel) {
  require_equal<BadInput>(world.size(), parallel.ranks(), "ranks of the communicator");
  LayerComms comms;
  for (int k = 0; k < kGroupKinds; ++k) {
    const auto kind = static_cast<GroupKind>(k);
    if (kind == GroupKind::world) continue;  // of all stages
    const int colour = kind == GroupKind::none ? 0 : members(parallel, kind, world.rank()).front();
    comms.by_kind_[static_cast<size_t>(k)] = world.split(colour, world.rank());
  }
  return comms;
}

LayerComms KnownComms::of(Communicator& world, const ParallelShape& parallel) {
  const auto found = std::ranges::find(known_, parallel, [](const auto& each) { return each.first; });
  if (found != known_.end()) return found->second;
  return known_.emplace_back(parallel, LayerComms::split(world, parallel)).second;
}

}  // namespace moe
