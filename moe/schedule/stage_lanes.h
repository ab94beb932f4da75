#pragma once
// The lanes of a schedule's layout, and which of them a task of a stage goes on.
#include <array>
#include <vector>

#include "moe/schedule/schedule.h"

namespace moe::schedule {

class StageLanes {
 public:
  using Networks = std::array<Network, kGroupKinds>;
  StageLanes(LaneLayout layout, const Networks& networks, int stages);

  /// Returns the lanes of all stages, nothing queued.
  const std::vector<Lane>& all() const { return lanes_; }
  size_t a_stage() const { return a_stage_; }
  /// Returns the lane of a group's collectives, or of what the group `none` computes; -1: a group of one rank.
  int of(GroupKind group, int stage) const;
  int of_gradients(int stage) const;
  /// Returns the lane of a task of that kind. Copies have a lane of their own, or that of what they lay out; receives
  /// from other stages have one, so that they run beside the stage's own sends.
  int of(TaskKind kind, Flow flow, int stage) const;

 private:
  int lane_of(LaneKind kind, int stage) const;
  bool shares_gradients(GroupKind group) const;

  LaneLayout layout_;
  Networks networks_;
  std::vector<Lane> lanes_;
  size_t a_stage_ = 0;
};

}  // namespace moe::schedule
