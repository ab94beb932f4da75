#pragma once
// Holds the communicators of one rank of a layer: one a kind of group, so collectives on different lanes never meet.
// Copies share the communicators.
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "moe/comm/communicator.h"
#include "moe/plan/groups.h"

namespace moe {

class LayerComms {
 public:
  /// Splits `world`, whose ranks are those of `parallel`. Blocking; all ranks call it.
  static LayerComms split(Communicator& world, const ParallelShape& parallel);

  /// Returns the communicator of a kind. `none` is the whole stage, every rank of this layer, and so is `stage`, for a
  /// lane of its own. `world` is not here.
  Communicator& of(GroupKind kind) const { return *by_kind_[static_cast<size_t>(kind)]; }

 private:
  std::array<std::shared_ptr<Communicator>, kGroupKinds> by_kind_;
};

/// Keeps what a rank has split, for layers that run in turns: NCCL takes half a second a communicator.
class KnownComms {
 public:
  /// Does what LayerComms::split() does, once a shape.
  LayerComms of(Communicator& world, const ParallelShape& parallel);

 private:
  std::vector<std::pair<ParallelShape, LayerComms>> known_;
};

}  // namespace moe
